"""A runner stopped in the middle of its load, for as long as a test likes."""

from __future__ import annotations

from collections.abc import Collection
from types import TracebackType

import psutil
import trio

from tests.support.real_daemon import RealDaemon

__all__ = ["HeldRunner"]

POLL = 0.005
LIMIT = 10.0


class HeldRunner:
    """Stops (SIGSTOP) the next runner that `daemon` starts, before it is ready. Leaving the context lets it go on."""

    def __init__(self, daemon: RealDaemon) -> None:
        self._daemon = daemon
        self._known: Collection[int] = ()
        self.process: psutil.Process | None = None

    def __enter__(self) -> HeldRunner:
        self._known = {child.pid for child in self._daemon.children()}
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.let_go()

    async def caught(self) -> psutil.Process:
        """Wait for the runner and stop it. Starting Python takes it far longer than a look takes us."""
        daemon = psutil.Process(self._daemon.pid).cmdline()
        with trio.fail_after(LIMIT):
            while True:
                for child in self._daemon.children():
                    if child.pid not in self._known and _started(child, daemon):
                        child.suspend()
                        self.process = child
                        return child
                await trio.sleep(POLL)

    def let_go(self) -> None:
        """The load goes on, if there is one still."""
        if self.process is not None and self.process.is_running():
            self.process.resume()


def _started(process: psutil.Process, parent: list[str]) -> bool:
    """True once it has become another program: the daemon waits for that, so it must not be stopped before."""
    try:
        return process.cmdline() not in ([], parent)
    except psutil.NoSuchProcess:
        return False
