"""A simulated machine: memory is taken and given back by simulated processes; queries may be late, fail or lie."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

import trio

from trio_ollama.hardware.contract import CPU, DeviceReport, MemoryReport

from .loop import sleep

__all__ = ["GIB", "SimulatedHardware"]

GIB = 1 << 30


class SimulatedHardware:
    """Implements `hardware.contract.Hardware`. Sizes in bytes, durations in seconds; faults may be set at any time."""

    def __init__(self, gpus: Mapping[str, int] | None = None, *, ram: int = 64 * GIB, integrated: bool = False) -> None:
        self.integrated = integrated
        """Whatever is taken from a GPU is taken from RAM as well (R64)."""
        self._totals: dict[str, int] = {**(gpus or {}), CPU: ram}
        self._history: dict[str, list[tuple[float, int]]] = {id_: [(float("-inf"), 0)] for id_ in self._totals}
        self.lags = dict.fromkeys(self._totals, 0.0)
        """Reports show what was the case this long ago (R35, R37)."""
        self.query_time = 0.0
        self.reads_first = False
        """A look shows what was the case when it began, however long it takes (R65)."""
        self.failing = False
        """Queries of the GPUs answer None (I19)."""
        self.silent = False
        """Reports of the GPUs have no figures of what is free (I19)."""
        self.memory_failing = False
        """Queries of the system's memory answer None (I19)."""
        self.error: Exception | None = None
        """Raised by queries: a fault that the contract does not know."""
        self.queries = 0
        self.asked_at = float("-inf")
        """When the last look began, whatever came of it."""
        self.vanished: set[str] = set()
        """In no report (R65)."""
        self.lost: set[str] = set()
        """Reported as such, and not to be used (R65)."""
        self.tells_processes = False
        """The driver says who holds what (R31)."""
        self._holders: dict[str, dict[int, list[tuple[float, int]]]] = {}
        self._foreign: dict[str, int] = {}
        """Bytes that other programs hold."""

    # -- what processes do ----------------------------------------------------------------------------------------

    def take(self, id_: str, amount: int, pid: int | None = None) -> None:
        """Somebody allocates `amount` bytes (negative: gives them back); foreign programs do it, too, unnamed."""
        if pid is not None:
            held = self._holders.setdefault(id_, {}).setdefault(pid, [(float("-inf"), 0)])
            held.append((trio.current_time(), held[-1][1] + amount))
        for taken in (id_, CPU) if self.integrated and id_ != CPU else (id_,):
            history = self._history[taken]
            history.append((trio.current_time(), history[-1][1] + amount))

    def take_away(self, id_: str, amount: int) -> None:
        """Another program takes `amount` bytes, if there are any (negative: gives back what it has)."""
        held = self._foreign.get(id_, 0)
        amount = max(-held, min(amount, self._totals[id_] - self.used(id_)))
        self._foreign[id_] = held + amount
        self.take(id_, amount)

    def lag(self, seconds: float, id_: str = "") -> None:
        """Reports of that device, or of all, are so late from now on."""
        self.lags.update(dict.fromkeys([id_] if id_ else self.lags, seconds))

    def heal(self) -> None:
        """The machine works as it should from now on, and is ours alone."""
        self.lag(0.0)
        self.query_time, self.error = 0.0, None
        self.failing = self.silent = self.memory_failing = self.reads_first = False
        self.vanished.clear()
        self.lost.clear()
        for id_, held in list(self._foreign.items()):
            self.take_away(id_, -held)

    def used(self, id_: str) -> int:
        """Bytes in use at this moment."""
        return self._history[id_][-1][1]

    def short_of(self, wanted: Mapping[str, int]) -> int:
        """Bytes of `wanted`, by device, that there is no room for at this moment, whatever reports show."""
        return sum(max(0, amount - self._totals[id_] + self.used(id_)) for id_, amount in wanted.items())

    def reported_free(self, id_: str) -> int:
        """Bytes that a process finds free that asks the driver at this moment."""
        return self._reported_free(id_, trio.current_time())

    @property
    def in_use(self) -> dict[str, int]:
        """Devices that are not empty."""
        return {id_: self.used(id_) for id_ in self._totals if self.used(id_)}

    # -- what the scheduler sees ----------------------------------------------------------------------------------

    async def devices(self) -> tuple[DeviceReport, ...] | None:
        self.asked_at = began = trio.current_time()
        await self._query()
        if self.failing:
            return None
        read = began if self.reads_first else trio.current_time()
        return tuple(
            DeviceReport(
                id_,
                "cuda",
                f"Simulated {id_}",
                total,
                None if self.silent else self._reported_free(id_, read),
                compute=(9, 0),
                integrated=self.integrated,
                trouble="lost" if id_ in self.lost else "",
            )
            for id_, total in self._totals.items()
            if id_ != CPU and id_ not in self.vanished
        )

    async def memory(self) -> MemoryReport | None:
        self.asked_at = trio.current_time()  # the system answers at once
        if self.memory_failing:
            return None
        return MemoryReport(self._totals[CPU], self._reported_free(CPU, self.asked_at))

    async def processes(self, device: str) -> Mapping[int, int | None] | None:
        if not self.tells_processes or device not in self._totals or device in self.vanished | self.lost:
            return None
        began = trio.current_time()
        await self._query()
        if self.failing:
            return None
        shown_at = (began if self.reads_first else trio.current_time()) - self.lags[device]
        shown = {pid: _then(held, shown_at) for pid, held in self._holders.get(device, {}).items()}
        return {pid: amount for pid, amount in shown.items() if amount}

    async def _query(self) -> None:
        self.queries += 1
        await sleep(self.query_time)
        if self.error is not None:
            raise self.error

    def _reported_free(self, id_: str, read: float) -> int:
        """What a look shows that reads its figures at that instant."""
        return max(0, self._totals[id_] - _then(self._history[id_], read - self.lags[id_]))


def _then(history: list[tuple[float, int]], at: float) -> int:
    """What was the case at that instant, with all that happened in it so far."""
    last, amount = history[-1]
    return amount if last <= at else history[bisect_right(history, (at, 1 << 80)) - 1][1]
