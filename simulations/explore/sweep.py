"""Disturb a scenario at each of its steps in turn: nobody else may notice, and nothing may be left.

`cancels` and `ends` are whole: every moment there is. `pairs` and `cancels_at_the_end` draw some of the many there are,
always the same ones. `sweep` plays them and judges.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from simulations.scenarios import Request, Run, Scenario, What
from simulations.scenarios.seeds import Spot
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from simulations.world.system import OURS, System

from .moments import Disturbed, Mode, Moment, disturbed

__all__ = [
    "Failure",
    "Moments",
    "Sweep",
    "cancels",
    "cancels_at_the_end",
    "ends",
    "pairs",
    "problems",
    "sample",
    "sweep",
]

Moments = tuple[Moment, ...]

_MODES = tuple(Mode)
_WELL = Behaviour()


@dataclass(frozen=True, slots=True)
class Failure:
    spot: Spot
    moments: Moments
    problems: tuple[str, ...]
    trace: tuple[str, ...]
    """The last lines."""

    def __str__(self) -> str:
        where = ",".join(map(str, self.moments))
        return "\n".join([f"{self.spot.text} --at {where}: {'; '.join(self.problems)}", *self.trace])


@dataclass(slots=True)
class Sweep:
    runs: int = 0
    failures: list[Failure] = field(default_factory=list)


def sweep(spot: Spot, plan: Iterable[Moments], *, system: System = OURS, most: int = 3) -> Sweep:
    """Play it with each item of `plan`; stops after `most` failures."""
    before, result = spot.play(system=system), Sweep()
    for moments in plan:
        result.runs += 1
        came = disturbed(spot, *moments, system=system)
        if wrong := tuple(problems(came, before)):
            result.failures.append(Failure(spot, moments, wrong, tuple(came.run.trace[-20:])))
            if len(result.failures) >= most:
                break
    return result


# -- where --------------------------------------------------------------------------------------------------------


def cancels(spot: Spot, clients: Sequence[int] = (), modes: Sequence[Mode] = _MODES) -> Iterator[Moments]:
    """Each of the clients (all, if none is named) leaves at each of its steps, in each mode."""
    for moment in _all(spot, _leaving(spot, clients, modes)):
        yield (moment,)


def ends(spot: Spot, how: Sequence[What] = (What.END, What.CLOSE)) -> Iterator[Moments]:
    """The server ends, or closes, after each step of any task."""
    for moment in _all(spot, [Moment(what, Mode.BETWEEN, 0) for what in how]):
        yield (moment,)


def pairs(spot: Spot, most: int, modes: Sequence[Mode] = _MODES) -> Iterator[Moments]:
    """Two clients leave; `most` of all combinations, drawn."""
    leaving = list(_all(spot, _leaving(spot, (), modes)))
    draw = random.Random(spot.schedule)
    while most and len(spot.scenario.requests) > 1:
        first, second = draw.choice(leaving), draw.choice(leaving)
        if first.target != second.target:
            most -= 1
            yield first, second


def cancels_at_the_end(spot: Spot, most: int, modes: Sequence[Mode] = _MODES) -> Iterator[Moments]:
    """The server ends, or closes, and a client leaves before or after; `most` of all combinations, drawn."""
    leaving = list(_all(spot, _leaving(spot, (), modes)))
    ending = [moments[0] for moments in ends(spot)]
    draw = random.Random(spot.schedule)
    for _ in range(most if leaving else 0):
        yield draw.choice(ending), draw.choice(leaving)


def sample(plan: Iterable[Moments], most: int) -> list[Moments]:
    """At most so many of a plan, evenly spread over it."""
    whole = list(plan)
    return [whole[number * len(whole) // most] for number in range(most)] if most < len(whole) else whole


def _leaving(spot: Spot, clients: Sequence[int], modes: Sequence[Mode]) -> list[Moment]:
    numbers = clients or range(1, len(spot.scenario.requests) + 1)
    return [Moment(number, mode, 0) for number in numbers for mode in modes]


def _all(spot: Spot, moments: Sequence[Moment]) -> Iterator[Moment]:
    """Those moments at each of their steps: a run that is not disturbed tells how many there are."""
    for moment, count in zip(moments, disturbed(spot, *moments).steps, strict=True):
        for k in range(1, count + 1):
            yield Moment(moment.target, moment.mode, k)


# -- what has to come of it ---------------------------------------------------------------------------------------


def problems(came: Disturbed, before: Run) -> Iterator[str]:
    """What is wrong with a disturbed run; `before`: the same run, undisturbed."""
    run = came.run
    yield from run.broken
    left = {
        moment.target: at for moment, at in zip(came.moments, came.at, strict=True) if isinstance(moment.target, int)
    }
    calm = run.closed_at is None and _is_calm(run.scenario)
    for number, (client, undisturbed) in enumerate(zip(run.clients, before.clients, strict=True), 1):
        ended = f"{client.name} {client.outcome}{'' if client.error is None else f' ({client.error})'}"
        gone = left.get(number)
        if gone is not None:
            if gone < (client.ended_at or 0):
                yield f"I10: {ended} at {client.ended_at:g}, it left at {gone:g}"
        elif client.outcome is Outcome.CANCELLED and client.script.leaves == float("inf"):
            yield f"I09: {ended}, it did not leave"
        elif calm and undisturbed.outcome is Outcome.ANSWERED and client.outcome is Outcome.FAILED:
            yield f"I09: {ended}, it has nothing to do with all this"
    yield from _after_the_end(came)


def _is_calm(scenario: Scenario) -> bool:
    """Whether everybody who stays must be answered."""
    odd = scenario.faults or scenario.launches or scenario.usual.refuses_calls or scenario.usual.spawn_error
    return not odd and all(
        getattr(scenario.usual, name) == getattr(_WELL, name)
        for name in Behaviour.__dataclass_fields__
        if not name.endswith("_time")
    )


def _after_the_end(came: Disturbed) -> Iterator[str]:
    """I25: nobody waits any more, nothing is started, and if the server ends at once, all is gone within the bounds."""
    run = came.run
    for moment, at, started in zip(came.moments, came.at, came.started, strict=True):
        if isinstance(moment.target, int) or at == float("inf"):
            continue
        for process in run.processes[started:]:
            yield f"I25: process {process.pid} was started at {process.started_at:g}, the end came at {at:g}"
        bound = at + run.scenario.limits.stop_grace + run.scenario.limits.kill_wait
        for client, request in zip(run.clients, run.scenario.requests, strict=True):
            ended = (
                f"{client.name} {client.outcome} at {client.ended_at:g}" if client.ended_at is not None else client.name
            )
            begun = client.granted_at is not None and client.granted_at <= at
            if not begun and (client.ended_at or 0) > max(at, request.at):
                yield f"I25: {ended}, the end came at {at:g}"
            if begun and moment.target is What.END and (client.ended_at or 0) > bound + _own_time(request):
                yield f"I25: {ended}, the end came at {at:g}"
        for process in run.processes if moment.target is What.END else ():
            if process.ended_at is None or process.ended_at > bound:
                yield f"I25: process {process.pid} ended at {process.ended_at}, the end came at {at:g}"


def _own_time(request: Request) -> float:
    """Seconds that it takes by itself, whatever becomes of its runner."""
    return request.hold + request.pause * request.tokens
