"""The end of the server (R67-R71)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.scheduler import Limits

from .case import Case, Known
from .ingredients import trouble_until
from .placement import within
from .requirements import answered, end, failed, launched, processes

__all__ = ["CASES", "NOT_HERE"]

NOT_HERE: Final = {
    "R69": "real processes that outlive a real one: tests/real/test_killed_daemon.py",
}

BOUND: Final = Limits().stop_grace + Limits().kill_wait


def over(run: Run, *, bound: float = BOUND) -> Iterator[str]:
    """After the end nothing was started; all that was there is gone within the bound, and everybody knows."""
    closed = run.closed_at
    if closed is None:
        yield "the server was not told to end"
        return
    lines = iter(run.trace)
    any("fault: end" in line or "fault: close" in line for line in lines)
    yield from (f"after the end: {line.strip()}" for line in lines if " starts: " in line)
    for process in run.processes:
        if process.ended_at is None or process.ended_at > closed + bound:
            yield f"process {process.pid} ended at {process.ended_at}; the server, at {closed:g}"
    for client, request in zip(run.clients, run.scenario.requests, strict=True):
        latest = closed + bound if request.at <= closed else request.at
        if end(client) > latest:
            yield f"{client.name} ended at {end(client):g}; the server, at {closed:g}"
        waited = client.granted_at is None or client.granted_at > closed
        if waited and client.outcome is not Outcome.FAILED and end(client) > closed:
            yield f"{client.name} {client.outcome} at {end(client):g}; the server ended at {closed:g}"


# -- R67 ----------------------------------------------------------------------------------------------------------


R67 = Case(
    entry="R67",
    title="the server ends during a load: both the end and the load close the process, the second one finds none",
    known=(Known.CODE,),
    source=("S000 unloadAllRunners", "S000 load"),
    scenario=Scenario(
        launches={"b": (Behaviour(kill_time=1),)},  # so that the end takes a while
        requests=(
            Request(model="b"),
            Request(model="a", at=5),
            Request(model="a", at=5.1),
            Request(model="c", at=5.2),
        ),
        faults=(Fault(at=5.3, what=What.END, stepwise=True), trouble_until(30)),
    ),
    requires=over,
    schedules=range(40),
)

R67_FAILING = Case(
    entry="R67-b",
    title="the server ends at the moment at which a load fails",
    known=(Known.CODE,),
    source=("S000 unloadAllRunners", "S000 load"),
    scenario=Scenario(
        launches={"a": (Behaviour(dies_loading=0.5),)},
        requests=(Request(model="a"), Request(model="a", at=0.5), Request(model="b", at=0.7)),
        faults=(Fault(at=1, what=What.END, stepwise=True),),
    ),
    requires=over,
    schedules=range(40),
)


# -- R68 ----------------------------------------------------------------------------------------------------------


def _finished(run: Run) -> Iterator[str]:
    """Whoever streams is let finish, whoever waits is refused; nothing is started any more."""
    yield from over(run, bound=math.inf)
    yield from answered(run, 0)
    yield from failed(run, 1, 2, by=run.closed_at or 0)


R68 = Case(
    entry="R68",
    title="the server ends while room is made for a load: it starts after the sweep",
    known=(Known.CODE,),
    source=("S000 processPending", "S000 unloadAllRunners"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        requests=(Request(model="a"), Request(model="b", at=5), Request(model="c", at=5)),
        faults=(Fault(at=5, what=What.END, stepwise=True),),
    ),
    requires=over,
    schedules=range(80),
)

R68_COLD = Case(
    entry="R68-b",
    title="the server ends at any step of the first request",
    known=(Known.CODE,),
    source=("S000 processPending", "S000 unloadAllRunners"),
    scenario=Scenario(
        requests=(Request(model="a"), Request(model="b")),
        faults=(Fault(at=0, what=What.END, stepwise=True),),
    ),
    requires=over,
    schedules=range(60),
)

R68_CLOSING = Case(
    entry="R68-c",
    title="the server takes no more, at any step of an eviction: who streams is let finish, nothing is started",
    known=(Known.CODE,),
    source=("S000 processPending",),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        requests=(Request(model="a", tokens=400), Request(model="a", at=5), Request(model="b", at=5)),
        faults=(Fault(at=5, what=What.CLOSE, stepwise=True),),
    ),
    requires=_finished,
    schedules=range(40),
)


# -- R70 ----------------------------------------------------------------------------------------------------------


def _does_not_wait_for_readers(run: Run) -> Iterator[str]:
    for process in run.processes:
        if process.ended_at is None or process.ended_at > 7 + BOUND:
            yield f"process {process.pid} ended at {process.ended_at}; the server, at 7"
    yield from failed(run, 1, by=5)
    yield from failed(run, 2, by=6)


R70 = Case(
    entry="R70",
    title="a client that does not read is no reason to stay",
    known=(Known.MEASURED, Known.REPORT),
    source=("pgjones/hypercorn#308", "pgjones/hypercorn#374", "pgjones/hypercorn#376"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        requests=(Request(model="a", pause=1000), Request(model="b", at=3), Request(model="a", at=6)),
        faults=(Fault(at=5, what=What.CLOSE), Fault(at=7, what=What.END)),
    ),
    requires=_does_not_wait_for_readers,
    control_passes="it kills its children first; what waited for the client was the web server in front of ours",
)


# -- R71 ----------------------------------------------------------------------------------------------------------

DEAF: Final = Behaviour(term_time=None)
IMMORTAL: Final = Behaviour(term_time=None, kill_time=None)


def _killed_in_time(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, by=10 + Limits().stop_grace + 3)
    (first, *_) = processes(run, "a")
    sent = [name for _, name in first.signals]
    if sent != ["TERM", "KILL"]:
        yield f"it was sent {sent}, not TERM and then KILL"
    elif first.signals[1][0] - first.signals[0][0] != Limits().stop_grace:
        yield f"it was sent SIGKILL {first.signals[1][0] - first.signals[0][0]:g} s after SIGTERM"


def _its_memory_is_not_free(run: Run) -> Iterator[str]:
    yield from within(run, "GPU-0", 24)
    yield from answered(run, 0, 1, 2)
    yield from failed(run, 3, by=60)
    yield from launched(run, "a", 1)
    if end(run.clients[1]) > 22.5:
        yield f"the other GPU was free all the time, and {run.clients[1].name} ended at {end(run.clients[1]):g}"


R71 = Case(
    entry="R71",
    title="a runner ignores SIGTERM",
    known=(Known.MEASURED, Known.REPORT),
    source=("mostlygeek/llama-swap#38", "ollama/ollama#3489"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        launches={"a": (DEAF,)},
        requests=(Request(model="a"), Request(model="b", at=10)),
        faults=(trouble_until(30),),
    ),
    requires=_killed_in_time,
)

R71_STUCK = Case(
    entry="R71-b",
    title="a runner cannot be killed: its memory is not free, the other GPU is, its own model is refused",
    known=(Known.MEASURED, Known.REPORT),
    source=("ollama/ollama#3489", "python-trio/trio#1209"),
    scenario=Scenario(
        gpus=(24, 20),
        models={"a": 16, "b": 14, "c": 16},
        launches={"a": (IMMORTAL,)},
        requests=(
            Request(model="a", keep_alive=1),
            Request(model="b", at=20),
            Request(model="c", at=30),  # it fits on GPU-0 only, and waits until the operating system lets go
            Request(model="a", at=40),
        ),
        faults=(trouble_until(60),),
    ),
    requires=_its_memory_is_not_free,
)


CASES: Final = (R67, R67_FAILING, R68, R68_COLD, R68_CLOSING, R70, R71, R71_STUCK)
