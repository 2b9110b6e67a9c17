"""trio's event loop without what a simulated world has no use for: real time, and input or output.

`trio.testing.MockClock` and the real I/O manager would do as well. But they ask the operating system for its time and
for events again and again, and need a round of the loop of their own for each jump, which together is most of what a
run costs. Names of trio that are used here are private; `determinism.self_test` notices when they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import trio.abc

from .guard import Guard

__all__ = ["JumpingClock", "NoIo"]

LONG: Final = 1e9
"""Seconds; trio cuts it to what it needs to wake who waits for all others to be blocked."""


class JumpingClock(trio.abc.Clock):
    """Stands still as long as anybody can run, then jumps to the next deadline.

    `at_rest` is called before each jump: nothing will happen any more at this instant.
    """

    def __init__(self, at_rest: Callable[[], None]) -> None:
        self._at_rest = at_rest
        self._now = 0.0
        self.runner: Any = None
        """trio's; nothing moves without it."""
        self.guard: Guard | None = None

    def start_clock(self) -> None:
        """trio begins; the first task runs before anybody can ask how long to sleep."""

    def current_time(self) -> float:
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """trio asks for this when no task can run, with the next deadline of all."""
        if deadline <= self._now:
            return 0
        runner = self.runner
        if runner.waiting_for_idle or runner.entry_queue.queue:
            return LONG
        self._at_rest()
        if deadline < math.inf:
            self._now = deadline
        elif self.guard is not None:
            self.guard.everybody_waits()
        return 0


class NoIo:
    """In place of an I/O manager: looks for events only when something came from outside of all tasks (Ctrl-C)."""

    def __init__(self, runner: Any, guard: Guard) -> None:
        self._runner = runner
        self._manager = runner.io_manager
        self._guard = guard

    def get_events(self, timeout: float) -> Any:
        self._guard.count_round()
        if self._runner.entry_queue.queue:
            return self._manager.get_events(0)
        return ()

    def process_events(self, events: Any) -> None:
        if events:
            self._manager.process_events(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)
