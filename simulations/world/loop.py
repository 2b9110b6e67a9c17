"""trio's event loop without what a simulated world has no use for: real time, and input or output.

`trio.testing.MockClock` and the real I/O manager would do as well. But they ask the operating system for its time and
for events again and again, and need a round of the loop of their own for each jump, which together is most of what a
run costs. Names of trio that are used here are private; `determinism.self_test` notices when they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

import trio
import trio.abc

from .guard import Guard

__all__ = ["JumpingClock", "Nap", "NoIo", "sleep", "sleep_until"]

LONG: Final = 1e9
"""Seconds; trio cuts it to what it needs to wake who waits for all others to be blocked."""


class JumpingClock(trio.abc.Clock):
    """Stands still as long as anybody can run, then jumps to the next deadline.

    `at_rest` is called before each jump: nothing will happen any more at this instant.
    """

    def __init__(self, at_rest: Callable[[], None]) -> None:
        self._at_rest = at_rest
        self._now = 0.0
        self._alarms: list[tuple[float, int, _Alarm]] = []
        """A heap, by instant and then by number."""
        self._number = 0
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
        alarms = self._alarms
        if alarms:
            deadline = min(deadline, alarms[0][0])
        if deadline < math.inf:
            self._now = deadline
            while alarms and alarms[0][0] <= deadline:
                heappop(alarms)[2].ring()
        elif self.guard is not None:
            self.guard.everybody_waits()
        return 0

    def set_alarm(self, at: float, alarm: _Alarm) -> None:
        self._number += 1
        heappush(self._alarms, (at, self._number, alarm))


class _Alarm:
    """Wakes a task once, unless it has stopped waiting."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    def ring(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait(self) -> None:
        def abort(raise_cancel: object) -> trio.lowlevel.Abort:
            self.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


class Nap:
    """The sleep of one task, which others may end early.

    As a deadline around the wait for an event, at a third of its price: a scope that ends by its deadline is the most
    expensive thing in trio's loop. On other clocks than ours it is just that.
    """

    __slots__ = ("_alarm", "_event")

    def __init__(self) -> None:
        self._alarm: _Alarm | None = None
        self._event: trio.Event | None = None

    def end(self) -> None:
        """Wake the task, if it sleeps."""
        if self._alarm is not None:
            self._alarm.ring()
        if self._event is not None:
            self._event.set()

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return await trio.lowlevel.checkpoint()
        clock = _clock()
        if not isinstance(clock, JumpingClock):
            self._event = trio.Event()
            with trio.move_on_after(seconds):
                await self._event.wait()
            return None
        self._alarm = _Alarm()
        if seconds < math.inf:
            clock.set_alarm(clock.current_time() + seconds, self._alarm)
        try:
            await self._alarm.wait()
        finally:
            self._alarm = None


async def sleep(seconds: float) -> None:
    """`trio.sleep`, at a third of its price."""
    await sleep_until(trio.current_time() + seconds)


async def sleep_until(at: float) -> None:
    clock = _clock()
    if at <= clock.current_time():
        await trio.lowlevel.checkpoint()
    elif isinstance(clock, JumpingClock):
        alarm = _Alarm()
        if at < math.inf:
            clock.set_alarm(at, alarm)
        await alarm.wait()
    else:
        await trio.sleep_until(at)


def _clock() -> trio.abc.Clock:
    clock: trio.abc.Clock = trio.lowlevel.current_clock()
    return clock


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
