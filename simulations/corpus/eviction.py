"""Who waits for somebody to go, and comes next (R38-R41, R45, R47)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import EXIT, FOR_EVER, LOAD, ONE_AT_A_TIME, OUT_OF_MEMORY, trouble_until
from .requirements import MOMENT, answered, end, launched, never_two, processes, unharmed

__all__ = ["CASES", "NOT_HERE"]

GONE: Final = EXIT + MOMENT
"""Between the stop of a model and the start of the next."""


# -- R38 ----------------------------------------------------------------------------------------------------------
# x is busy until 6.6. b needs its memory from 4 on; two more requests want x, with a keep-alive of five minutes. c is
# there to be seen waiting for nothing: it is cold, and fits beside either of them.


def _b_is_next(run: Run) -> Iterator[str]:
    """b waits for the one user that x has when b comes, c for nobody, and who wants x later for b."""
    yield from answered(run, 1, by=end(run.clients[0]) + GONE + LOAD + MOMENT)
    yield from answered(run, 4, by=4.5 + LOAD + MOMENT)
    yield from answered(run, 0, 2, 3, by=20)
    yield from launched(run, "b", 1)
    yield from launched(run, "c", 1)


R38 = Case(
    entry="R38",
    title="a request for the victim brings it back to life, and the evictor waits for ever",
    known=(Known.CODE, Known.REPORT),
    source=(
        "S000 getRunner",
        "S000 useLoadedRunner",
        "ollama/ollama#17408",
        "ollama/ollama#17416",
        "ollama/ollama#17515",
    ),
    scenario=Scenario(
        models={**ONE_AT_A_TIME, "c": 2.0},
        requests=(
            Request(model="x", tokens=20, pause=0.2),
            Request(model="b", at=4),
            Request(model="x", at=5, tokens=10, pause=0.2, keep_alive=300),
            Request(model="x", at=8, tokens=10, pause=0.2, keep_alive=300),
            Request(model="c", at=4.5),
        ),
    ),
    requires=_b_is_next,
    schedules=range(20),
)


R38_B = Case(
    entry="R38-b",
    title="the same with a request that wants its model kept for ever: nothing ends it",
    known=R38.known,
    source=R38.source,
    scenario=Scenario(
        models={**ONE_AT_A_TIME, "c": 2.0},
        requests=(
            Request(model="x", tokens=20, pause=0.2),
            Request(model="b", at=4),
            Request(model="x", at=5, tokens=10, pause=0.2, keep_alive=FOR_EVER),
            Request(model="x", at=8, tokens=10, pause=0.2, keep_alive=FOR_EVER),
            Request(model="c", at=4.5),
        ),
    ),
    requires=_b_is_next,
    schedules=range(20),
)


# -- R39 ----------------------------------------------------------------------------------------------------------
# From 2 to 18 there is always somebody on x. One request wants it with another context.


def _other_context_is_next(run: Run) -> Iterator[str]:
    found = max(end(run.clients[0]), end(run.clients[1]))
    yield from answered(run, 2, by=found + GONE + LOAD + MOMENT)
    yield from answered(run, *range(len(run.clients)))
    yield from launched(run, "x", 3)
    yield from never_two(run, "x")


R39 = Case(
    entry="R39",
    title="a request that needs a reload starves while others use the model",
    known=(Known.CODE, Known.REPORT),
    source=("ollama/ollama#14407", "ollama/ollama#14364"),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        requests=(
            Request(model="x", tokens=20, pause=0.2, num_ctx=4096),
            Request(model="x", at=2, tokens=20, pause=0.2, num_ctx=4096),
            Request(model="x", at=3, num_ctx=8192),
            *(Request(model="x", at=at, tokens=20, pause=0.2, num_ctx=4096) for at in (4, 6, 8, 10, 12, 14)),
        ),
    ),
    requires=_other_context_is_next,
)


# -- R40 ----------------------------------------------------------------------------------------------------------
# c starts to load at 5 and takes more than anybody thought: at 15 it runs out of memory. x has expired meanwhile, and
# whoever waits for "an unload" on behalf of c finds that one. y answers until 20.


def _retry_waits_for_y(run: Run) -> Iterator[str]:
    yield from answered(run, 2)
    yield from launched(run, "c", 2)
    last = processes(run, "c")[-1]
    if any(process.ended_at is None or process.ended_at > last.started_at for process in processes(run, "y")):
        yield f"process {last.pid} of c was started while y was still there"


R40 = Case(
    entry="R40",
    title="the end of one model is mistaken for the end of another, and the only retry is spent",
    known=(Known.CODE, Known.REPORT),
    source=("S000 evictAllAndWait", "S000 processPending", "ollama/ollama#17309"),
    scenario=Scenario(
        models={"x": 2.0, "y": 8.0, "c": 8.0},
        launches={
            "c": (
                Behaviour(load_time=20, surplus=10, exit_lines=OUT_OF_MEMORY),
                Behaviour(load_time=2, surplus=10, exit_lines=OUT_OF_MEMORY),
            ),
        },
        requests=(
            Request(model="x", keep_alive=10),
            Request(model="y", at=0.1, tokens=78, pause=0.2),
            Request(model="c", at=5),
        ),
        faults=(trouble_until(40),),
    ),
    requires=_retry_waits_for_y,
)


# -- R41 ----------------------------------------------------------------------------------------------------------
# A look at the machine takes 2 s. b comes half a second before x expires: when b has its figures, in which x is still
# there, x is not.


def _b_is_served(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from launched(run, "b", 1)


R41 = Case(
    entry="R41",
    title="nobody is left to be the victim: the list is empty, and its first element is taken",
    known=(Known.CODE,),
    source=("S003 findRunnerToUnload",),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        requests=(Request(model="x", keep_alive=5), Request(model="b", at=6.5)),
        faults=(
            Fault(at=3, what=What.QUERY_TIME, amount=2),
            Fault(at=3, what=What.LAG, amount=3),
            trouble_until(30),
        ),
    ),
    requires=_b_is_served,
    older=True,
    schedules=range(30),
)


# -- R45 ----------------------------------------------------------------------------------------------------------


def _one_at_a_time(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2, by=20)
    for one, next_ in zip(run.processes, run.processes[1:], strict=False):
        if not one.signals or one.signals[0][0] > next_.started_at:
            yield f"process {next_.pid} was started while {one.pid} was not even told to go; one model is allowed"


R45 = Case(
    entry="R45",
    title="two requests take the same freed place: one sleeps for ever, or the limit is exceeded",
    known=(Known.REPORT,),
    source=("ggml-org/llama.cpp#28443", "am17an/llama.cpp#36"),
    scenario=Scenario(
        policy=Policy(max_models=1),
        requests=(Request(model="a"), Request(model="b", at=10), Request(model="c", at=10)),
    ),
    requires=_one_at_a_time,
    schedules=range(30),
    control_passes="known from another server; in Go one loop places one request at a time",
)


# -- R47 ----------------------------------------------------------------------------------------------------------
# The machine cannot be looked at when the first model is loaded, which is all that ever counted the GPUs.


def _six_fit(run: Run) -> Iterator[str]:
    yield from answered(run, *range(5))
    for model in "bcde":
        yield from launched(run, model, 1)
        yield from unharmed(run, model, until=300)


R47 = Case(
    entry="R47",
    title="the limit of loaded models is kept from a moment at which no GPU could be seen",
    known=(Known.CODE,),
    source=("S000 processPending",),
    scenario=Scenario(
        gpus=(24, 24),
        requests=(Request(model="a", at=0.5, keep_alive=5), *(Request(model=model, at=10) for model in "bcde")),
        faults=(Fault(at=0, what=What.QUERIES_FAIL), Fault(at=1, what=What.QUERIES_FAIL, amount=0)),
    ),
    requires=_six_fit,
)


CASES: Final = (
    R38,
    R38_B,
    R39,
    R40,
    R41,
    R45,
    R47,
)
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType({})
"""Entries of this part that no scenario can show, and the tests that do."""
