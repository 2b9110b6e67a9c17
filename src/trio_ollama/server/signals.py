"""The two ways to end the daemon from outside: ask, and insist."""

from __future__ import annotations

import logging
import signal

import trio

__all__ = ["watch_signals"]

logger = logging.getLogger(__name__)


async def watch_signals(
    drain: trio.Event, root: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """On the first SIGINT or SIGTERM set `drain`; on the next one cancel `root`, which cleans up and leaves at once.

    Start it before anything that must not be left behind: without it a SIGTERM ends the process where it stands, and
    children of it go on. Runs until cancelled.
    """
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if drain.is_set():
                logger.warning("%s again: leaving now", name)
                root.cancel(f"second signal ({name})")
            else:
                logger.info("%s: shutting down", name)
                drain.set()
