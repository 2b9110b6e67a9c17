"""A clock that jumps, and sleep on it: a scope that ends by its deadline is the most expensive thing in trio's loop."""

from __future__ import annotations

import math
from heapq import heappop, heappush

import trio
import trio.abc

__all__ = ["JumpingClock", "Nap", "sleep", "sleep_until"]


class JumpingClock(trio.abc.Clock):
    """Stands still as long as anybody can run, then jumps to the next alarm or deadline."""

    def __init__(self) -> None:
        self.now = 0.0
        self._alarms: list[tuple[float, int, _Alarm]] = []
        """A heap, by instant and then by number."""
        self._number = 0

    def start_clock(self) -> None:
        """It starts at zero."""

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        raise AssertionError("nobody sleeps here")

    @property
    def next_alarm(self) -> float:
        """Infinite, if there is none."""
        return self._alarms[0][0] if self._alarms else math.inf

    def jump(self, to: float) -> None:
        """Let time pass, at most until the next alarm, which rings."""
        self.now, alarms = to, self._alarms
        while alarms and alarms[0][0] <= to:
            heappop(alarms)[2].ring()

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

    As a deadline around the wait for an event, at a third of its price. On other clocks than ours it is just that.
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
        await self.sleep_until(trio.current_time() + seconds)

    async def sleep_until(self, at: float) -> None:
        clock = _clock()
        if at <= clock.current_time():
            return await trio.lowlevel.checkpoint()
        if not isinstance(clock, JumpingClock):
            self._event = trio.Event()
            with trio.move_on_at(at):
                await self._event.wait()
            return None
        self._alarm = _Alarm()
        if at < math.inf:
            clock.set_alarm(at, self._alarm)
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
