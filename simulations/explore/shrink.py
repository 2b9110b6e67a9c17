"""Make a failing run smaller, as long as it breaks the same rule: fewer clients and faults, plainer values.

First whole halves of the clients, of the faults and of the spoiled launches go, then smaller parts (delta debugging);
then each value becomes usual, or rounder; again and again, until nothing more can go or the time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from simulations.scenarios import Run, Scenario
from simulations.scenarios.seeds import SHUFFLE, Spot

from .simpler import edits, weight

__all__ = ["SECONDS", "Shrunk", "rule", "shrink"]

SECONDS: Final = 45.0
RUNS: Final = 50_000
INTERLEAVINGS: Final = 6
"""That are tried with each smaller scenario: with a client less, the same seed means another interleaving."""


def rule(run: Run) -> str | None:
    """The name of the first rule that a run broke."""
    return run.broken[0].split(":")[0] if run.broken else None


@dataclass(frozen=True, slots=True)
class Shrunk:
    spot: Spot
    run: Run
    """Of it."""
    runs: int
    """That were tried."""
    seconds: float
    done: bool
    """Nothing more could go; else the time was over."""


def shrink(
    spot: Spot, *, seconds: float = SECONDS, runs: int = RUNS, say: Callable[[Shrunk], None] = lambda shrunk: None
) -> Shrunk:
    """The smallest run found that breaks the rule that `spot` breaks; `say` hears of each that is smaller.

    Raises `ValueError` if `spot` breaks none.
    """
    run = spot.play()
    if rule(run) is None:
        raise ValueError(f"{spot.text} breaks no rule")
    search = _Search(spot, run, monotonic() + seconds, runs, say)
    try:
        while search.round():
            pass
    except _OutOfTimeError:
        return search.shrunk(done=False)
    return search.shrunk(done=True)


class _OutOfTimeError(Exception):
    pass


class _Search:
    def __init__(self, spot: Spot, run: Run, until: float, most: int, say: Callable[[Shrunk], None]) -> None:
        self._began = monotonic()
        self._until = until
        self._most = most
        self._say = say
        self._rule = rule(run)
        self._spot, self._run = spot, run
        self._runs = 1
        self._known: set[str] = set()
        """Scenarios that did not fail."""

    def shrunk(self, *, done: bool) -> Shrunk:
        return Shrunk(self._spot, self._run, self._runs, monotonic() - self._began, done)

    def round(self) -> bool:
        """Try everything once; False if nothing helped."""
        before = self._spot
        self._fewer(lambda now: now.requests, lambda now, kept: replace(now, requests=tuple(kept)))
        self._fewer(lambda now: now.faults, lambda now, kept: replace(now, faults=tuple(kept)))
        self._fewer(_launches, _with_launches)
        self._fewer(lambda now: now.gpus, lambda now, kept: replace(now, gpus=tuple(kept)))
        for edit in edits(self._spot.scenario):
            self._try(edit(self._spot.scenario))
        if self._spot.order != SHUFFLE:
            self._try_spots(Spot("shrunk", self._spot.scenario, schedule) for schedule in range(3 * INTERLEAVINGS))
        self._try_spots(replace(self._spot, schedule=schedule) for schedule in range(min(self._spot.schedule, 30)))
        return self._spot != before

    def _fewer(
        self, parts: Callable[[Scenario], Sequence[Any]], put: Callable[[Scenario, Sequence[Any]], Scenario]
    ) -> None:
        """Leave out parts, large ones first."""
        step = max(1, len(parts(self._spot.scenario)) // 2)
        while step:
            start = 0
            while start < len(items := parts(self._spot.scenario)):
                if not self._try(put(self._spot.scenario, [*items[:start], *items[start + step :]])):
                    start += step
            step //= 2

    def _try(self, scenario: Scenario) -> bool:
        """Take it, if it is simpler and fails in the same way in one of a few interleavings."""
        if weight(scenario) >= weight(self._spot.scenario) or (text := repr(scenario)) in self._known:
            return False
        schedules = dict.fromkeys((self._spot.schedule, *range(INTERLEAVINGS)))
        if self._try_spots(Spot("shrunk", scenario, schedule, self._spot.order) for schedule in schedules):
            return True
        self._known.add(text)
        return False

    def _try_spots(self, spots: Iterator[Spot]) -> bool:
        for spot in spots:
            if monotonic() >= self._until or self._runs >= self._most:
                raise _OutOfTimeError
            self._runs += 1
            run = spot.play()
            if rule(run) == self._rule:
                self._spot, self._run = spot, run
                self._say(self.shrunk(done=False))
                return True
        return False


def _launches(scenario: Scenario) -> Sequence[tuple[str, Any]]:
    return [(model, behaviour) for model, several in scenario.launches.items() for behaviour in several]


def _with_launches(scenario: Scenario, kept: Sequence[tuple[str, Any]]) -> Scenario:
    models = dict.fromkeys(model for model, _ in kept)
    return replace(scenario, launches={name: tuple(how for model, how in kept if model == name) for name in models})
