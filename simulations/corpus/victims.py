"""Who has to go for whom, and who must not (R42-R44, R46)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from simulations.scenarios import Request, Run, Scenario
from simulations.world.behaviour import Behaviour

from .case import Case, Known
from .ingredients import EXIT, LOAD, ONE_AT_A_TIME, trouble_until
from .requirements import MOMENT, answered, end, failed, launched, stopped, unharmed

__all__ = ["CASES", "NOT_HERE"]

GONE: Final = EXIT + MOMENT
"""Between the stop of a model and the start of the next."""


# -- R42 ----------------------------------------------------------------------------------------------------------


def _idle_before_busy(run: Run) -> Iterator[str]:
    yield from stopped(run, "y", after=6, by=6.1)
    yield from unharmed(run, "x", until=end(run.clients[0]))
    yield from answered(run, 2, by=6 + GONE + LOAD + 1)


R42 = Case(
    entry="R42",
    title="who is idle goes before who is busy, whatever their keep-alive",
    known=(Known.CODE, Known.TEST),
    source=("TestSchedFindRunnerToUnload",),
    scenario=Scenario(
        models={"x": 6.0, "y": 6.0, "b": 12.0},
        requests=(
            Request(model="x", tokens=40, pause=0.2, keep_alive=10),
            Request(model="y", keep_alive=100),
            Request(model="b", at=6),
        ),
    ),
    requires=_idle_before_busy,
    control_passes="the rule is upstream's own; what it lacks is in R42-b, -c and -d",
)


def _only_large_goes(run: Run) -> Iterator[str]:
    yield from stopped(run, "large", after=10, by=10.1)
    for small in ("s", "t"):
        yield from unharmed(run, small, until=60)
    yield from answered(run, 3, by=10 + GONE + LOAD + 1)


R42_B = Case(
    entry="R42-b",
    title="models that free too little are stopped one by one, before the one that suffices",
    known=(Known.CODE,),
    source=("S000 findRunnerToUnload", "S000 processPending"),
    scenario=Scenario(
        models={"s": 2.0, "t": 2.0, "large": 14.0, "b": 15.0},
        requests=(
            Request(model="large"),
            Request(model="s", keep_alive=60),
            Request(model="t", keep_alive=60),
            Request(model="b", at=10),
        ),
    ),
    requires=_only_large_goes,
)


def _only_on_that_gpu(run: Run) -> Iterator[str]:
    yield from unharmed(run, "s", until=60)
    yield from stopped(run, "large", after=10, by=10.1)
    yield from answered(run, 2, by=10 + GONE + LOAD + 1)


R42_C = Case(
    entry="R42-c",
    title="a model on another GPU is stopped, which helps nobody",
    known=(Known.CODE,),
    source=("S000 findRunnerToUnload",),
    scenario=Scenario(
        gpus=(24, 16),
        models={"large": 14.0, "s": 4.0, "b": 18.0},
        requests=(Request(model="large"), Request(model="s", at=3, keep_alive=60), Request(model="b", at=10)),
    ),
    requires=_only_on_that_gpu,
)


def _refused_before_anybody_goes(run: Run) -> Iterator[str]:
    yield from failed(run, 1, by=10.1)
    yield from launched(run, "huge", 0)
    yield from unharmed(run, "x", until=300)


R42_D = Case(
    entry="R42-d",
    title="all others are stopped for a model that cannot fit even then",
    known=(Known.CODE,),
    source=("S000 processPending",),
    scenario=Scenario(
        ram=32,
        models={"x": 4.0, "huge": 60.0},
        requests=(Request(model="x"), Request(model="huge", at=10)),
    ),
    requires=_refused_before_anybody_goes,
)


# -- R43 ----------------------------------------------------------------------------------------------------------


def _x_serves_first(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from unharmed(run, "x", until=end(run.clients[0]))
    yield from launched(run, "x", 1)


R43 = Case(
    entry="R43",
    title="a model that loads, or answers, is killed to make room",
    known=(Known.REPORT,),
    source=(
        "ggml-org/llama.cpp#24849",
        "ggml-org/llama.cpp#22447",
        "ggml-org/llama.cpp#21678",
        "mostlygeek/llama-swap#19",
        "mostlygeek/llama-swap#277",
    ),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        launches={"x": (Behaviour(load_time=10),)},
        requests=(Request(model="x", tokens=20, pause=0.2), Request(model="b", at=1)),
        faults=(trouble_until(20),),
    ),
    requires=_x_serves_first,
    control_passes="known from other servers; the Go scheduler never does it",
)


# -- R44 ----------------------------------------------------------------------------------------------------------


def _each_load_serves(run: Run) -> Iterator[str]:
    yield from answered(run, *range(len(run.clients)))
    served = {client.generation for client in run.clients}
    if len(run.processes) > len(served):
        yield f"{len(run.processes)} processes were started, and {len(served)} of them served somebody"


R44 = Case(
    entry="R44",
    title="two models that cannot coexist evict each other before they have served anybody",
    known=(Known.REPORT,),
    source=("ggml-org/llama.cpp#22284",),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        requests=tuple(Request(model="xb"[number % 2], at=0.5 * number) for number in range(12)),
    ),
    requires=_each_load_serves,
    control_passes="known from another server; in Go the first requester has the model before anybody can evict it",
)


# -- R46 ----------------------------------------------------------------------------------------------------------

MENDED: Final = "mended upstream since the reports; the case keeps it so here"
NO_USE: Final = ("ollama/ollama#13227", "ollama/ollama#13242", "ollama/ollama#7041")


def _both_stay(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, by=10 + LOAD + MOMENT)
    yield from unharmed(run, "x", until=300)
    yield from unharmed(run, "b", until=300)


R46 = Case(
    entry="R46",
    title="without a GPU nothing ever fits into GPU memory, so each load evicts",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=NO_USE,
    scenario=Scenario(gpus=(), requests=(Request(model="x"), Request(model="b", at=10))),
    requires=_both_stay,
    control_passes=MENDED,
)

R46_B = Case(
    entry="R46-b",
    title="a model for the CPU evicts one from the GPU",
    known=R46.known,
    source=NO_USE,
    scenario=Scenario(
        models={"x": 18.0, "b": 18.0}, requests=(Request(model="x"), Request(model="b", at=10, num_gpu=0))
    ),
    requires=_both_stay,
    control_passes=MENDED,
)

R46_C = Case(
    entry="R46-c",
    title="a request that asked for a few layers on the GPU evicts to have all of them there",
    known=R46.known,
    source=("TestSchedLlamaServerExplicitPartialNumGPUSkipsFullFitEviction", *NO_USE),
    scenario=Scenario(
        models={"x": 18.0, "b": 18.0}, requests=(Request(model="x"), Request(model="b", at=10, num_gpu=8))
    ),
    requires=_both_stay,
    control_passes=MENDED,
)

R46_D = Case(
    entry="R46-d",
    title="a model that fits beside another one evicts it",
    known=R46.known,
    source=("TestSchedLlamaServerFitsAlongside", *NO_USE),
    scenario=Scenario(models={"x": 4.0, "b": 1.0}, requests=(Request(model="x"), Request(model="b", at=10))),
    requires=_both_stay,
    control_passes=MENDED,
)


CASES: Final = (
    R42,
    R42_B,
    R42_C,
    R42_D,
    R43,
    R44,
    R46,
    R46_B,
    R46_C,
    R46_D,
)
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType({})
"""Entries of this part that no scenario can show, and the tests that do."""
