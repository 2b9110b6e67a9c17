"""Make a failing run smaller, as long as it breaks the same rule: fewer clients and faults, plainer values.

First whole halves of the clients, of the faults and of the spoiled launches go, then smaller parts (delta debugging);
then each value becomes usual, or rounder; again and again, until nothing more can go or the time is over. If it fails
only because somebody leaves at a certain step, that step moves along with what becomes of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from simulations.scenarios import Scenario
from simulations.scenarios.seeds import SHUFFLE, Spot

from .failing import Failing, attempts, had
from .simpler import edits, weight
from .sweep import Moments

__all__ = ["SECONDS", "Shrunk", "shrink"]

SECONDS: Final = 45.0
RUNS: Final = 50_000
INTERLEAVINGS: Final = 6
"""That are tried with each smaller scenario: with a client less, the same seed means another interleaving."""
NEAR: Final = 16
"""Other steps that are tried for each moment: it is at another one as well."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    failing: Failing
    runs: int
    """That were tried."""
    seconds: float
    done: bool
    """Nothing more could go; else the time was over."""

    @property
    def spot(self) -> Spot:
        return self.failing.spot


def shrink(
    spot: Spot,
    moments: Moments = (),
    *,
    seconds: float = SECONDS,
    runs: int = RUNS,
    say: Callable[[Shrunk], None] = lambda shrunk: None,
) -> Shrunk:
    """The smallest run found that breaks the rule that `spot`, disturbed at the `moments`, breaks.

    `say` hears of each that is smaller. Raises `ValueError` if it breaks none.
    """
    failing = had(spot, moments)
    if failing.rule is None:
        raise ValueError(f"{failing.text} breaks no rule")
    search = _Search(failing, monotonic() + seconds, runs, say)
    try:
        while search.round():
            pass
    except _OutOfTimeError:
        return search.shrunk(done=False)
    return search.shrunk(done=True)


class _OutOfTimeError(Exception):
    pass


class _Search:
    def __init__(self, failing: Failing, until: float, most: int, say: Callable[[Shrunk], None]) -> None:
        self._began = monotonic()
        self._until = until
        self._most = most
        self._say = say
        self._rule = failing.rule
        self._failing = failing
        self._runs = 1
        self._known: set[str] = set()
        """Scenarios that did not fail."""

    def shrunk(self, *, done: bool) -> Shrunk:
        return Shrunk(self._failing, self._runs, monotonic() - self._began, done)

    @property
    def _spot(self) -> Spot:
        return self._failing.spot

    def round(self) -> bool:
        """Try everything once; False if nothing helped."""
        before = self._failing
        moments = before.moments
        for fewer in ((), *((moment,) for moment in moments if len(moments) > 1)) if moments else ():
            if self._try_all([(self._spot, fewer)]):
                break
        self._fewer(lambda now: now.requests, lambda now, kept: replace(now, requests=tuple(kept)), clients=True)
        self._fewer(lambda now: now.faults, lambda now, kept: replace(now, faults=tuple(kept)))
        self._fewer(_launches, _with_launches)
        self._fewer(lambda now: now.gpus, lambda now, kept: replace(now, gpus=tuple(kept)))
        for edit in edits(self._spot.scenario):
            self._try(edit(self._spot.scenario))
        if self._spot.order != SHUFFLE:
            plain = [Spot("shrunk", self._spot.scenario, schedule) for schedule in range(3 * INTERLEAVINGS)]
            self._try_all((spot, self._failing.moments) for spot in plain)
        earlier = [replace(self._spot, schedule=schedule) for schedule in range(min(self._spot.schedule, 30))]
        self._try_all((spot, self._failing.moments) for spot in earlier)
        return (self._spot, self._failing.moments) != (before.spot, before.moments)

    def _fewer(
        self,
        parts: Callable[[Scenario], Sequence[Any]],
        put: Callable[[Scenario, Sequence[Any]], Scenario],
        *,
        clients: bool = False,
    ) -> None:
        """Leave out parts, large ones first."""
        step = max(1, len(parts(self._spot.scenario)) // 2)
        while step:
            start = 0
            while start < len(items := parts(self._spot.scenario)):
                moments: Moments | None = self._failing.moments
                if clients:
                    moments = _without(self._failing.moments, start + 1, start + step)
                smaller = put(self._spot.scenario, [*items[:start], *items[start + step :]])
                if moments is None or not self._try(smaller, moments):
                    start += step
            step //= 2

    def _try(self, scenario: Scenario, moments: Moments | None = None) -> bool:
        """Take it, if it is simpler and fails in the same way in one of a few interleavings."""
        if weight(scenario) >= weight(self._spot.scenario) or (text := repr(scenario)) in self._known:
            return False
        moments = self._failing.moments if moments is None else moments
        schedules = dict.fromkeys((self._spot.schedule, *range(1 if moments else INTERLEAVINGS)))
        spots = [Spot("shrunk", scenario, schedule, self._spot.order) for schedule in schedules]
        if self._try_all((spot, moments) for spot in spots):
            return True
        self._known.add(text)
        return False

    def _try_all(self, runs: Iterable[tuple[Spot, Moments]]) -> bool:
        for spot, moments in runs:
            self._count()
            for failing in attempts(spot, moments, NEAR):
                if failing.rule == self._rule:
                    self._failing = failing
                    self._say(self.shrunk(done=False))
                    return True
                if moments:
                    self._count()
        return False

    def _count(self) -> None:
        if monotonic() >= self._until or self._runs >= self._most:
            raise _OutOfTimeError
        self._runs += 1


def _without(moments: Moments, first: int, last: int) -> Moments | None:
    """Those moments when the clients of these numbers are not there; None if one of them is needed."""
    targets = [moment.target for moment in moments]
    if any(isinstance(target, int) and first <= target <= last for target in targets):
        return None
    gone = last - first + 1
    return tuple(
        replace(moment, target=moment.target - gone)
        if isinstance(moment.target, int) and moment.target > last
        else moment
        for moment in moments
    )


def _launches(scenario: Scenario) -> Sequence[tuple[str, Any]]:
    return [(model, behaviour) for model, several in scenario.launches.items() for behaviour in several]


def _with_launches(scenario: Scenario, kept: Sequence[tuple[str, Any]]) -> Scenario:
    models = dict.fromkeys(model for model, _ in kept)
    return replace(scenario, launches={name: tuple(how for model, how in kept if model == name) for name in models})
