"""When idle runners are to end, worked out a second time from what is told of their requests (I15)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.records import Runner
from trio_ollama.scheduler.core.values import FOREVER

__all__ = ["KeepAlives"]


class KeepAlives:
    """Instants and durations in nanoseconds, but for `overdue`."""

    def __init__(self) -> None:
        self._idle_since: dict[int, float] = {}
        """By generation; infinite while it has leases."""
        self._keep: dict[int, int] = {}
        self._ends: dict[int, float] = {}
        """Of runners that were idle when they were last looked at."""
        self._next_end = math.inf

    def loaded(self, gen: int, at: int, keep: int) -> None:
        """It is ready, and stays for so long unless a request says otherwise."""
        self._idle_since[gen], self._keep[gen] = at, keep

    def granted(self, gen: int, keep: int | None) -> None:
        """Somebody has a lease; the last one who wants something decides (R24)."""
        self._idle_since[gen] = math.inf
        if keep is not None:
            self._keep[gen] = keep

    def idle(self, gen: int, at: int) -> None:
        """Its last lease has ended."""
        self._idle_since[gen] = at

    def busy(self, gen: int) -> bool:
        return self._idle_since.get(gen) == math.inf

    def end(self, gen: int) -> float:
        """When it is to end; infinite: not by itself."""
        keep = self._keep[gen]
        return math.inf if keep == FOREVER else self._idle_since[gen] + keep

    def note(self, runners: Mapping[int, Runner]) -> None:
        """Something has changed: these are there."""
        self._ends = {
            gen: self.end(gen) for gen, runner in runners.items() if runner.state is State.READY and not runner.leases
        }
        self._next_end = min(self._ends.values(), default=math.inf)

    def overdue(self, now: float) -> list[int]:
        """Generations that should have ended before the second `now`."""
        if now * 1e9 <= self._next_end + 1:
            return []
        return [gen for gen, end in self._ends.items() if now * 1e9 > end + 1]
