"""Official clients try again after any 5xx, unless they are told that it is of no use."""

from __future__ import annotations

import pytest

from tests.support.fake_scheduler import Batch
from trio_ollama.runners.contract import LoadFailedError, RunnerDiedError
from trio_ollama.scheduler import CrashBackoffError, ForcedStopError, NeverFitsError, QueueFullError, ShuttingDownError

from .conftest import Daemon
from .test_finality import REQUESTS, tokens

KINDS = ("chat", "openai", "anthropic")
"""One for each dialect."""
STOPPED = ForcedStopError("the model was stopped")
DIED = RunnerDiedError("signal SIGKILL")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("refusal", "status", "told"),
    [
        (STOPPED, 503, "false"),
        (NeverFitsError("more than there is"), 500, "false"),
        (CrashBackoffError("several times in a row"), 500, "false"),
        (QueueFullError(), 503, None),
        (ShuttingDownError(), 503, None),
        (LoadFailedError("no"), 500, None),
    ],
)
async def test_without_a_runner(daemon: Daemon, kind: str, refusal: Exception, status: int, told: str | None) -> None:
    daemon.scheduler.refusal = refusal
    answer = await daemon.post(*REQUESTS[kind])
    assert (answer.status, answer.headers.get("x-should-retry")) == (status, told)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("trouble", "status", "told"), [(STOPPED, 503, "false"), (DIED, 500, None)])
async def test_before_anything_is_sent(
    daemon: Daemon, kind: str, stream: bool, trouble: Exception, status: int, told: str | None
) -> None:
    """An answer that is not streamed may have begun by then."""
    begun: list[Batch | None] = [] if stream else [tokens(kind, "a")]
    daemon.scheduler.script = lambda path, body: [*begun, trouble]
    path, body = REQUESTS[kind]
    answer = await daemon.post(path, body | {"stream": stream})
    assert (answer.status, answer.headers.get("x-should-retry")) == (status, told)
