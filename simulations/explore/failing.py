"""A run that fails: by itself, or only if somebody leaves, or the server ends, at certain steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from simulations.scenarios import Run
from simulations.scenarios.seeds import Spot

from .moments import disturbed
from .sweep import Moments, problems

__all__ = ["Failing", "attempts", "had", "rule"]


@dataclass(frozen=True, slots=True)
class Failing:
    spot: Spot
    moments: Moments
    run: Run
    wrong: tuple[str, ...]
    """What is wrong with it, in words, the name of the rule first; empty if it is fine."""

    @property
    def rule(self) -> str | None:
        return rule(self.wrong)

    @property
    def text(self) -> str:
        """How it is called at the command line."""
        at = ",".join(map(str, self.moments))
        return f"{self.spot.text} --at {at}" if at else self.spot.text


def rule(wrong: Sequence[str]) -> str | None:
    """The name of the first rule that did not hold."""
    return wrong[0].split(":")[0] if wrong else None


def had(spot: Spot, moments: Moments = ()) -> Failing:
    """That run, and what is wrong with it."""
    return next(attempts(spot, moments))


def attempts(spot: Spot, moments: Moments = (), near: int = 0) -> Iterator[Failing]:
    """That run; then the same with each of the moments, in turn, up to `near` other steps away from where it is.

    A run with a client less has other steps: the one that matters is nearby.
    """
    if not moments:
        run = spot.play()
        yield Failing(spot, (), run, tuple(run.broken))
        return
    calm = disturbed(spot, *(replace(moment, k=0) for moment in moments))
    for tried in _nearby(moments, calm.steps, near):
        run = (came := disturbed(spot, *tried)).run
        yield Failing(spot, tried, run, tuple(problems(came, calm.run)))


def _nearby(moments: Moments, steps: Sequence[int], near: int) -> Iterator[Moments]:
    yield moments
    for number, (moment, most) in enumerate(zip(moments, steps, strict=True)):
        others = sorted(set(range(1, most + 1)) - {moment.k}, key=lambda k: (abs(k - moment.k), k))
        for k in others[:near]:
            yield (*moments[:number], replace(moment, k=k), *moments[number + 1 :])
