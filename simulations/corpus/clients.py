"""Clients that leave or read slowly, as far as the scheduler sees them: what they hold, and for how long (R72-R77)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Request, Run, Scenario
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .requirements import MOMENT, answered, cancelled, generations, launched, processes, stopped

__all__ = ["CASES", "NOT_HERE"]

NOT_HERE: Final = {
    "R73": "bytes that hide the end of a connection: tests/server/test_disconnects.py",
    "R75": "the last record of a stream: tests/server/routes/test_finality.py",
}


# -- R72 ----------------------------------------------------------------------------------------------------------


def _leave_no_trace(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1, 2, 3, 4, 5, 6, 7)
    yield from answered(run, 0, 8)
    yield from launched(run, "b", 0)
    yield from launched(run, "a", 1)
    if (run.clients[8].granted_at or 99) > 20.2 + MOMENT:
        yield f"everybody else has left, and the last one waited until {run.clients[8].granted_at}"


R72 = Case(
    entry="R72",
    title="clients leave in every phase: queued, loading, waiting for a slot, in the prompt, streaming, embedding",
    known=(Known.MEASURED, Known.REPORT),
    source=("pgjones/hypercorn#210", "connectrpc/connect-py#174", "connectrpc/connect-py#175"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        usual=Behaviour(load_time=10, prompt_time=2, token_time=0.5),
        requests=(
            Request(model="a", tokens=10),
            Request(model="a", at=1, leaves=2),  # while it loads
            Request(model="b", at=3, leaves=4),  # in the queue
            Request(model="a", at=11, leaves=12),  # behind another one's slot
            Request(model="b", at=13, leaves=14),  # while it waits for an eviction
            Request(model="a", at=13, slot=False, tokens=0, leaves=15, hold=10),  # it only loads
            Request(model="a", at=16, tokens=9, leaves=18.25),  # in the prompt
            Request(model="a", at=18.5, slot=False, tokens=0, inputs=5, leaves=20.2),  # in the first of a batch
            Request(model="a", at=19),
        ),
    ),
    requires=_leave_no_trace,
)


# -- R74 ----------------------------------------------------------------------------------------------------------


def _delays_nobody(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from answered(run, 1, by=5 + 2 * MOMENT)
    yield from answered(run, 2, by=7 + 2 * MOMENT)
    yield from answered(run, 3, by=60 + 2 * MOMENT)
    yield from generations(run, 0, 1, 3)


R74 = Case(
    entry="R74",
    title="a client reads slowly, until it is given up: others stream beside it, its slot is free at once",
    known=(Known.MEASURED, Known.CODE),
    source=("HEAD streamResponse",),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        requests=(
            Request(model="a", tokens=20, pause=30, leaves=60),
            Request(model="a", at=5),
            Request(model="b", at=5),
            Request(model="a", at=59, tokens=10, slot=False, inputs=3),
        ),
    ),
    requires=_delays_nobody,
)

R74_ONE_SLOT = Case(
    entry="R74-b",
    title="a client that reads slowly has the only slot until it is given up, and not longer",
    known=(Known.MEASURED, Known.CODE),
    source=("HEAD streamResponse",),
    scenario=Scenario(
        requests=(Request(model="a", tokens=20, pause=30, leaves=60), Request(model="a", at=5)),
    ),
    requires=lambda run: iter([*cancelled(run, 0), *answered(run, 1, by=60 + MOMENT)]),
)


# -- R76 ----------------------------------------------------------------------------------------------------------


def _lease_came_back(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from answered(run, 1, by=2 + MOMENT + 30)
    yield from stopped(run, "a", after=2, by=2 + MOMENT)


R76 = Case(
    entry="R76",
    title="the client leaves between the grant and the first chunk: nobody is there to give the lease back",
    known=(Known.MEASURED, Known.REPORT),
    source=("agentscope-ai/QwenPaw#6998", "abetlen/llama-cpp-python#1861", "abetlen/llama-cpp-python#1879"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        requests=(
            Request(model="a", leaves=2, keep_alive=0),  # the load ends just then
            Request(model="b", at=1.5),
        ),
    ),
    requires=_lease_came_back,
    schedules=range(30),
    control_passes="in Go a lease ends with the context of its request, whoever reads",
)


# -- R77 ----------------------------------------------------------------------------------------------------------


def _not_cut(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from launched(run, "a", 1)
    if run.clients[0].got != 60:
        yield f"the long stream was cut after {run.clients[0].got} tokens"
    (first, *_) = processes(run, "a")
    if first.signals and first.signals[0][0] < 1200:
        yield f"its process was stopped at {first.signals[0][0]:g}"


R77 = Case(
    entry="R77",
    title="a load of ten minutes and a stream of ten minutes, wanted gone by another model: neither is cut",
    known=(Known.MEASURED,),
    source=("the limits of quart and hypercorn, measured",),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        launches={"a": (Behaviour(load_time=600, token_time=10),)},
        requests=(Request(model="a", tokens=60), Request(model="b", at=700)),
    ),
    requires=_not_cut,
    control_passes="the limits are those of a web framework",
)


CASES: Final = (R72, R74, R74_ONE_SLOT, R76, R77)
