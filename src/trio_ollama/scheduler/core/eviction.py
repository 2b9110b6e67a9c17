"""Which runners a waiter must ask to go: the smallest sufficient set on the resources that are short (R42).

Candidates are the ready runners that nobody earlier claims, in upstream's order; each one that turns out not to be
needed is left out again. Where there is a choice of placements, the one whose victims cost least wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .lifecycle import READY
from .pools import Pools
from .records import Runner
from .values import FOREVER, Placement
from .victims import eviction_order

__all__ = ["Candidates"]

Short = dict[str, int]
"""Bytes still missing, by resource; zero or less where enough has been found."""


class Candidates:
    """The ready runners that may still be claimed in this pass."""

    def __init__(self, runners: Iterable[Runner], pools: Pools) -> None:
        self._pools = pools
        self._runners = {runner.gen: runner for runner in runners if runner.state is READY}
        self._busy = {gen for gen, runner in self._runners.items() if runner.leases}
        self._idle_count = len(self._runners) - len(self._busy)
        self._order: list[Runner] | None = None
        self._idle_bytes = dict.fromkeys(pools.now, 0)
        self._bytes = dict.fromkeys(pools.now, 0)
        for gen, runner in self._runners.items():
            for id_, amount in runner.reservation.items():
                self._bytes[id_] = self._bytes.get(id_, 0) + amount
                if gen not in self._busy:
                    self._idle_bytes[id_] = self._idle_bytes.get(id_, 0) + amount

    def __contains__(self, gen: int) -> bool:
        return gen in self._runners

    @property
    def gens(self) -> frozenset[int]:
        return frozenset(self._runners)

    def idle(self, gens: Iterable[int]) -> bool:
        return self._busy.isdisjoint(gens)

    def granted(self, gen: int) -> None:
        """A lease of this pass: the runner is busy from now on."""
        if gen in self._runners and gen not in self._busy:
            self._busy.add(gen)
            self._idle_count -= 1
            self._order = None

    def remove(self, gen: int) -> None:
        """It is claimed, or goes anyway."""
        runner = self._runners.pop(gen, None)
        if runner is not None:
            self._order = None
            self._idle_count -= gen not in self._busy
            # An idle runner's bytes stay in the idle sum: that is an upper bound, only used to dismiss.
            for id_, amount in runner.reservation.items():
                self._bytes[id_] -= amount

    def within_reach(self, placements: Sequence[Placement]) -> Sequence[Placement]:
        """Those that could be met if everybody went who still may: a cheap first sieve, in the same order."""
        now, soon, later, going = self._pools.now, self._pools.soon, self._pools.later, self._bytes
        met: list[Placement] = []
        for placement in placements:
            for id_, amount in placement.need.items():
                if amount > now[id_] + soon[id_] + later[id_] + going[id_]:
                    break
            else:
                met.append(placement)
        return met

    def cheapest(
        self, placements: Sequence[Placement], forced: frozenset[int], *, idle_only: bool
    ) -> tuple[Placement, frozenset[int]] | None:
        """The placement whose claim costs least, with that claim, `forced` included; None if no set suffices.

        Costs, in this order: busy victims, pinned victims, victims, the placement's rank. With `idle_only` what later
        ends of busy runners bring does not count, and no busy runner may be in the claim.
        """
        if idle_only and not (self._idle_count and self.idle(forced)):
            return None
        going: dict[str, int] = {}
        for gen in sorted(forced):
            for id_, amount in self._runners[gen].reservation.items():
                going[id_] = going.get(id_, 0) + amount
        within_reach: list[tuple[int, Placement, Short]] = []
        for rank, placement in enumerate(placements):
            short = self._short(placement.need, going, idle_only=idle_only)
            if short is not None:
                if not short:
                    return placement, forced
                within_reach.append((rank, placement, short))
        best: tuple[tuple[int, int, int, int], Placement, frozenset[int]] | None = None
        for rank, placement, short in within_reach:
            victims = self._choose(short, forced, idle_only=idle_only)
            if victims is None:
                continue
            busy = sum(runner.gen in self._busy for runner in victims)
            pinned = sum(runner.keep_alive == FOREVER for runner in victims)
            cost = (busy, pinned, len(victims), rank)
            if best is None or cost < best[0]:
                best = (cost, placement, forced.union(runner.gen for runner in victims))
        return None if best is None else best[1:]

    def _short(self, need: Mapping[str, int], going: Mapping[str, int], *, idle_only: bool) -> Short | None:
        """What is missing for `need` without further victims; None if all of them together could not help."""
        pools = self._pools
        reach = self._idle_bytes if idle_only else self._bytes
        short: Short = {}
        for id_, amount in need.items():
            missing = amount - pools.now[id_] - pools.soon[id_] - going.get(id_, 0)
            if not idle_only:
                missing -= pools.later[id_]
            if missing > 0:
                if missing > reach[id_]:
                    return None
                short[id_] = missing
        return short

    def _choose(self, short: Short, forced: frozenset[int], *, idle_only: bool) -> list[Runner] | None:
        """Victims in order of eviction until nothing is short; then, from the last, those not needed are spared."""
        chosen: list[Runner] = []
        missing = dict(short)
        for runner in self._ordered():
            if runner.gen in forced or (idle_only and runner.gen in self._busy):
                continue
            if any(amount > 0 and runner.reservation.get(id_, 0) for id_, amount in missing.items()):
                chosen.append(runner)
                for id_ in missing:
                    missing[id_] -= runner.reservation.get(id_, 0)
                if all(amount <= 0 for amount in missing.values()):
                    break
        else:
            return None
        for runner in reversed(tuple(chosen)):
            without = {id_: amount + runner.reservation.get(id_, 0) for id_, amount in missing.items()}
            if all(amount <= 0 for amount in without.values()):
                chosen.remove(runner)
                missing = without
        return chosen

    def _ordered(self) -> list[Runner]:
        if self._order is None:
            self._order = sorted(
                self._runners.values(),
                key=lambda runner: eviction_order(runner.key, runner.keep_alive, runner.gen in self._busy, runner.gen),
            )
        return self._order
