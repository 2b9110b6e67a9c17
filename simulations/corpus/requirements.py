"""What cases require of a run, seen from outside: each function yields what is missing, in words.

Clients are named by their place among the scenario's requests, from 0. Instants are simulated seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from simulations.scenarios import Run
from simulations.world.clients import Client, Outcome
from simulations.world.runners import SimulatedRunner

__all__ = [
    "MOMENT",
    "answered",
    "cancelled",
    "end",
    "failed",
    "generations",
    "launched",
    "never_two",
    "processes",
    "stopped",
    "unharmed",
]

TICK: Final = 1e-6
"""Seconds by which sums of the same durations may differ."""
MOMENT: Final = 0.1
"""Seconds that count as "at once": what the calls of a small request take, and nothing that somebody waits for."""


def _tell(run: Run, number: int) -> str:
    client = run.clients[number]
    why = f" ({client.error})" if client.error is not None else ""
    when = "" if client.ended_at is None else f" at {client.ended_at:g}"
    return f"{client.name} ({client.script.demand.model.name}) {client.outcome or 'has no outcome'}{when}{why}"


def end(client: Client) -> float:
    """When it ended; never is infinitely late."""
    return float("inf") if client.ended_at is None else client.ended_at


def answered(run: Run, *numbers: int, by: float = float("inf")) -> Iterator[str]:
    """These get all that they asked for, at the latest `by`."""
    for number in numbers:
        client = run.clients[number]
        if client.outcome is not Outcome.ANSWERED:
            yield f"{_tell(run, number)}; it had to be answered"
        elif end(client) > by:
            yield f"{_tell(run, number)}, {by:g} was the latest"


def cancelled(run: Run, *numbers: int) -> Iterator[str]:
    """These left while they waited or were served, and were gone in that instant."""
    for number in numbers:
        client = run.clients[number]
        if client.outcome is not Outcome.CANCELLED:
            yield f"{_tell(run, number)}; it had left at {client.script.leaves:g}"
        elif end(client) > client.script.leaves:
            yield f"{_tell(run, number)}, and left at {client.script.leaves:g}"


def failed(run: Run, *numbers: int, by: float = float("inf"), text: str = "") -> Iterator[str]:
    """These get an error with `text` in it, at the latest `by`."""
    for number in numbers:
        client = run.clients[number]
        if client.outcome is not Outcome.FAILED or end(client) > by or text not in str(client.error):
            yield f"{_tell(run, number)}; it had to fail by {by:g} with {text!r}"


def generations(run: Run, *numbers: int) -> Iterator[str]:
    """These were served by one and the same process."""
    used = {run.clients[number].generation for number in numbers}
    if len(used) > 1:
        yield f"clients {[number + 1 for number in numbers]} used generations {sorted(map(str, used))}, not one"


def launched(run: Run, model: str, times: int) -> Iterator[str]:
    """The model was started so often, neither more nor less."""
    if run.launches(model) != times:
        yield f"{model} was started {run.launches(model)} times, not {times}"


def processes(run: Run, model: str) -> list[SimulatedRunner]:
    """Of a model, in the order in which they were started."""
    return [process for process in run.processes if process.spec.model == model]


def stopped(run: Run, model: str, *, after: float, by: float) -> Iterator[str]:
    """The first process of a model was asked to end in that time, not earlier and not later."""
    first = processes(run, model)[:1]
    sent = first[0].signals[0][0] if first and first[0].signals else float("inf")
    if not after - TICK <= sent <= by + TICK:
        yield f"the first process of {model} was stopped at {sent:.3f}, not between {after:g} and {by:g}"


def never_two(run: Run, model: str) -> Iterator[str]:
    """No process of a model was started while another one of it was there."""
    several = processes(run, model)
    for one, next_ in pairwise(several):
        if one.ended_at is None or one.ended_at > next_.started_at:
            yield f"process {next_.pid} of {model} was started before {one.pid} had ended"


def unharmed(run: Run, model: str, *, until: float) -> Iterator[str]:
    """The first process of a model was left alone until then."""
    yield from stopped(run, model, after=until, by=float("inf"))
