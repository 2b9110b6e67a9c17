"""Runners that die, hang, or never get ready (R78-R83)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.scheduler import Limits, Policy

from .case import Case, Known
from .ingredients import LOAD, trouble_until
from .requirements import MOMENT, answered, end, failed, launched, processes, unharmed

__all__ = ["CASES", "NOT_HERE"]

NOT_HERE: Final = {
    "R82": "who answers on a port: tests/runners/test_failures.py",
}


# -- R78 ----------------------------------------------------------------------------------------------------------


def _told_and_not_tried(run: Run) -> Iterator[str]:
    for number in (0, 1, 2):
        at = run.scenario.requests[number].at
        yield from failed(run, number, by=at + MOMENT, text="exit status 132: illegal instruction")
    yield from failed(run, 3, by=4 + MOMENT, text="exit status 132")  # without another try
    yield from answered(run, 4, by=60 + LOAD + MOMENT)
    yield from answered(run, 5, by=4 + LOAD + MOMENT)
    yield from launched(run, "a", 4)


R78 = Case(
    entry="R78",
    title="it dies at its start, each time: told at once, and not started again and again",
    known=(Known.MEASURED, Known.CODE),
    source=("builds of llama-server that die at their start, measured",),
    scenario=Scenario(
        launches={"a": 3 * (Behaviour(dies_loading=0, exit_code=132, exit_lines=("illegal instruction",)),)},
        requests=(
            Request(model="a", at=1),
            Request(model="a", at=2),
            Request(model="a", at=3),
            Request(model="a", at=4),
            Request(model="a", at=60),
            Request(model="b", at=4),
        ),
    ),
    requires=_told_and_not_tried,
)


def _told_once(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=1 + MOMENT, text="signal SIGKILL")
    for client in run.clients[1:3]:
        if client.outcome is Outcome.FAILED and end(client) > 1 + MOMENT:  # another try for it is as good
            yield f"{client.name} was told at {end(client):g}"
    yield from answered(run, 3, by=10 + LOAD + MOMENT)


R78_LATE = Case(
    entry="R78-b",
    title="it is killed in the middle of a load: that is seen at once, not by a timeout",
    known=(Known.MEASURED, Known.CODE),
    source=("builds of llama-server that die at their start, measured",),
    scenario=Scenario(
        launches={"a": (Behaviour(dies_loading=0.5, exit_code=-9),)},
        requests=(
            Request(model="a"),
            Request(model="a", at=0.5),
            Request(model="a", at=0.9),
            Request(model="a", at=10),
        ),
    ),
    requires=_told_once,
    control_passes="it sees the exit, too",
)


# -- R79 ----------------------------------------------------------------------------------------------------------

FRAIL: Final = Behaviour(dies_idle=3)


def _room_at_once(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from answered(run, 1, by=10 + LOAD + MOMENT)


def _loaded_anew_at_once(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from answered(run, 1, by=10 + LOAD + MOMENT)
    yield from launched(run, "a", 2)


R79 = Case(
    entry="R79",
    title="it dies while idle: its memory is taken to be in use, and waited for",
    known=(Known.CODE, Known.REPORT),
    source=("S000 needsReload", "mostlygeek/llama-swap#155", "ollama/ollama#14093"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        launches={"a": (FRAIL,)},
        requests=(Request(model="a"), Request(model="b", at=10)),
        faults=(trouble_until(60),),
    ),
    requires=_room_at_once,
)

R79_SAME = Case(
    entry="R79-b",
    title="it dies while idle: the next request for it waits for a corpse",
    known=(Known.CODE, Known.REPORT),
    source=("S000 needsReload", "mostlygeek/llama-swap#155", "ollama/ollama#14093"),
    scenario=Scenario(
        models={"a": 16},
        launches={"a": (FRAIL,)},
        requests=(Request(model="a"), Request(model="a", at=10)),
        faults=(trouble_until(60),),
    ),
    requires=_loaded_anew_at_once,
)


# -- R80 ----------------------------------------------------------------------------------------------------------


def _one_error_each(run: Run) -> Iterator[str]:
    yield from failed(run, 0, 1, 4, by=LOAD + 1)  # the last one waited for a slot: it had a lease, too
    yield from answered(run, 2, 3, by=LOAD + 0.2 + LOAD + MOMENT)
    yield from answered(run, 5, by=10)
    yield from launched(run, "a", 2)
    yield from launched(run, "b", 1)
    yield from unharmed(run, "b", until=100)
    if not 7 <= run.clients[0].got + run.clients[1].got <= 8:
        yield "a request that had begun was run once more"


R80 = Case(
    entry="R80",
    title="it dies in the middle of requests: an error for each that has begun, one fresh load for who waits",
    known=(Known.CODE, Known.REPORT),
    source=("HEAD Completion", "S000 needsReload", "ollama/ollama#14983"),
    scenario=Scenario(
        gpus=(24, 24),
        policy=Policy(num_parallel=2),
        models={"a": 16, "b": 16},
        launches={"a": (Behaviour(dies_after_tokens=7, exit_code=-11),)},
        requests=(
            Request(model="a", tokens=50),
            Request(model="a", tokens=50),
            Request(model="a", num_ctx=2048, at=2.01),  # with other options it has to wait for the others
            Request(model="a", num_ctx=2048, at=2.02),
            Request(model="a", at=2.005),
            Request(model="b", tokens=300),
        ),
    ),
    requires=_one_error_each,
)


# -- R81 ----------------------------------------------------------------------------------------------------------

IMPATIENT: Final = Limits(drain_progress=30)


def _given_up(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=5 + 30 + MOMENT)
    yield from answered(run, 1, by=5 + 30 + Limits().stop_grace + Limits().recovery + LOAD + 1)


R81 = Case(
    entry="R81",
    title="it hangs while another model needs its memory: a drain does not last for ever",
    known=(Known.REPORT,),
    source=("ollama/ollama#15950", "ollama/ollama#17428", "ggml-org/llama.cpp#27604"),
    scenario=Scenario(
        models={"a": 16, "b": 16},
        limits=IMPATIENT,
        requests=(Request(model="a", tokens=1000), Request(model="b", at=5)),
        faults=(Fault(at=4, what=What.HANG, target="a"), trouble_until(200)),
    ),
    requires=_given_up,
)


def _recycled(run: Run) -> Iterator[str]:
    """Who has a lease on it hears of it, who comes later gets a fresh one."""
    for process in run.processes:
        if process.most_at_once > process.spec.parallel:
            yield f"process {process.pid} has one slot, and worked for {process.most_at_once} calls at once"
    known = 2.5 + Limits().abort_confirm
    yield from failed(run, 1, by=known + MOMENT)
    yield from answered(run, 2, by=13 + LOAD + MOMENT)
    yield from launched(run, "a", 2)


R81_SLOT = Case(
    entry="R81-b",
    title="the slot of a request that left never comes back: the runner is recycled",
    known=(Known.REPORT,),
    source=("ollama/ollama#15950", "ollama/ollama#17428"),
    scenario=Scenario(
        launches={"a": (Behaviour(settle_time=None),)},
        requests=(Request(model="a", tokens=100, leaves=2.5), Request(model="a", at=4), Request(model="a", at=13)),
        faults=(trouble_until(200),),
    ),
    requires=_recycled,
)


# -- R83 ----------------------------------------------------------------------------------------------------------


def _given_up_after_the_last_sign(run: Run) -> Iterator[str]:
    yield from answered(run, 2, by=5 + LOAD + MOMENT)
    yield from failed(run, 0, 1, text="timed out waiting for llama-server to start")
    if not 301 <= end(run.clients[0]) <= 301 + MOMENT:
        yield f"the load stalled at 1, and was given up at {end(run.clients[0]):g}"
    yield from answered(run, 3, by=310 + LOAD + MOMENT)
    if len(processes(run, "a")) != 2:
        yield "the model was not started once more for the next one who asked"


R83 = Case(
    entry="R83",
    title="a load gives no sign of life: it is given up, and meanwhile others are served",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("S000 processPending", "ollama/ollama#16427"),
    scenario=Scenario(
        gpus=(24, 24),
        launches={"a": (Behaviour(stalls_loading=0.5),)},
        requests=(
            Request(model="a"),
            Request(model="a", at=100),
            Request(model="b", at=5),
            Request(model="a", at=310),
        ),
    ),
    requires=_given_up_after_the_last_sign,
)


CASES: Final = (R78, R78_LATE, R79, R79_SAME, R80, R81, R81_SLOT, R83)
