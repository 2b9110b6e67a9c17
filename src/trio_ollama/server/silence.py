"""A runner that lives but says nothing to a request must not keep that waiting for ever (R81).

One task looks at all requests from time to time, so that a token costs nothing for it. A request that is ended lets its
call go as if its client had left: a runner that does not take that either is replaced (R08).
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from trio_ollama.runners.contract import RunnerDiedError
from trio_ollama.server.live import LiveRequest, LiveRequests

__all__ = ["watch_silence"]

LOOKS: Final = 10
"""Within the limit; so much later than it a silence may be noticed."""

logger = logging.getLogger(__name__)


async def watch_silence(requests: LiveRequests, limit: float) -> None:
    """End each of `requests` whose runner is asked for something and says nothing for `limit` seconds.

    Time in which it waits for its client, for a slot or for a load does not count. Runs until cancelled.
    """
    waits: dict[LiveRequest, tuple[int, float]] = {}
    while True:
        await trio.sleep(limit / LOOKS)
        now, before, waits = trio.current_time(), waits, {}
        for live in requests:
            lease = live.lease
            if lease is None or lease.steps % 2 == 0:
                continue
            steps, since = before.get(live, (0, now))
            waits[live] = lease.steps, since if steps == lease.steps else now
            if now - waits[live][1] >= limit:
                logger.warning("%s gets no answer from %s for %g s, and is ended", live.id, lease.model, limit)
                lease.abandon(RunnerDiedError(f"no answer from the model for {limit:g} s"))
