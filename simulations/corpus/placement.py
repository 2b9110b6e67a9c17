"""Where a model goes, and the arithmetic of memory (R62-R66)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.hardware import GIB
from trio_ollama.hardware.contract import CPU

from .case import Case, Known
from .requirements import MOMENT, answered, launched, processes

__all__ = ["CASES", "NOT_HERE"]

NOT_HERE: Final[dict[str, str]] = {}


def on_devices(run: Run, model: str, *wanted: str) -> Iterator[str]:
    """Every process of the model sees just these GPUs, in any order."""
    for process in processes(run, model):
        if {*(process.spec.visible_devices or ())} != {*wanted}:
            yield f"process {process.pid} of {model} is on {process.spec.visible_devices}, not on {wanted}"


def within(run: Run, device: str, most: float) -> Iterator[str]:
    """The processes that are there at the same time never need more GiB of a device than that."""
    changes = sorted(
        (at, amount)
        for process in run.processes
        if (needed := process.footprint.get(device, 0))
        for at, amount in ((process.started_at, needed), (process.ended_at or float("inf"), -needed))
    )  # at the same instant, what ends comes first
    used = 0
    for at, amount in changes:
        used += amount
        if used > most * GIB:
            yield f"from {at:g} on, {used / GIB:g} GiB of {device} are needed at once; there are {most:g}"


# -- R62 ----------------------------------------------------------------------------------------------------------


def _overhead_stays_free(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from within(run, "GPU-0", 16)


# In the Go code the difference, taken before the check, is only logged: what was to be kept free is not.
R62 = Case(
    entry="R62",
    title="what is to be kept free is subtracted without a check, or not at all",
    known=(Known.CODE,),
    source=("S000 load", "S003 updateFreeSpace"),
    scenario=Scenario(
        overhead=8,
        models={"a": 10, "b": 10},
        requests=(Request(model="a"), Request(model="b", at=5)),
    ),
    requires=_overhead_stays_free,
)


# -- R63 ----------------------------------------------------------------------------------------------------------


def _on_the_one_with_most_room(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from on_devices(run, "a", "GPU-1")


def _on_both(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from on_devices(run, "a", "GPU-0", "GPU-1")


def _one_each(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    yield from launched(run, "a", 1)
    yield from launched(run, "b", 1)
    used = [process.spec.visible_devices for process in run.processes]
    if len({*used}) != 2:
        yield f"the two models are on {used}, not on a GPU each"


R63 = Case(
    entry="R63",
    title="one GPU holds it: the one with most room",
    known=(Known.TEST,),
    source=("S000 selectLlamaServerPlacement",),
    scenario=Scenario(gpus=(10, 20), models={"a": 8}, requests=(Request(),)),
    requires=_on_the_one_with_most_room,
    control_passes="the rule is upstream's own",
)

R63_GROUP = Case(
    entry="R63-b",
    title="no single GPU holds it: all of them",
    known=(Known.TEST,),
    source=("S000 selectLlamaServerPlacement",),
    scenario=Scenario(gpus=(12, 18), models={"a": 20}, requests=(Request(),)),
    requires=_on_both,
    control_passes="the rule is upstream's own",
)

R63_SECOND = Case(
    entry="R63-c",
    title="a second model goes to the other GPU, nobody is evicted",
    known=(Known.TEST, Known.REPORT),
    source=("ollama/ollama#14632", "ollama/ollama#16391"),
    scenario=Scenario(
        gpus=(24, 24),
        models={"a": 18, "b": 18},
        requests=(Request(model="a"), Request(model="b", at=5), Request(model="a", at=10)),
    ),
    requires=_one_each,
    control_passes="the rule is upstream's own",
)


# -- R64 ----------------------------------------------------------------------------------------------------------


def _ram_counts_once(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from within(run, "GPU-0", 16)


R64 = Case(
    entry="R64",
    title="an integrated GPU says that it has more than there is RAM",
    known=(Known.TEST, Known.REPORT),
    source=("S000 availableMemoryForLoad", "ollama/ollama#16719"),
    scenario=Scenario(
        gpus=(48,),
        ram=16,
        integrated=True,
        models={"a": 10, "b": 10},
        requests=(Request(model="a"), Request(model="b", at=5)),
    ),
    requires=_ram_counts_once,
    control_passes="the rule is upstream's own",
)


# -- R65 ----------------------------------------------------------------------------------------------------------


def _still_on_the_gpu(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2, by=20)
    for model in ("a", "b", "c"):
        yield from on_devices(run, model, "GPU-0")


def _found_again(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    yield from launched(run, "a", 1)
    yield from on_devices(run, "a", "GPU-1")
    yield from on_devices(run, "b", "GPU-0")
    if run.clients[2].ended_at is None or run.clients[2].ended_at > 30 + MOMENT:
        yield f"the model is still loaded, and its next request ended at {run.clients[2].ended_at}"


R65 = Case(
    entry="R65",
    title="looks at the GPUs fail for a while: nobody is put on the CPU",
    known=(Known.REPORT,),
    source=("ollama/ollama#5464", "ollama/ollama#10053"),
    scenario=Scenario(
        requests=(Request(model="a"), Request(model="b", at=5), Request(model="c", at=12)),
        faults=(
            Fault(at=4, what=What.QUERIES_FAIL),
            Fault(at=10, what=What.QUERIES_FAIL, amount=0),
            Fault(at=10, what=What.QUERIES_RAISE),
            Fault(at=20, what=What.QUERIES_RAISE, amount=0),
        ),
    ),
    requires=_still_on_the_gpu,
    control_passes="a look that fails keeps the last good answer there, too",
)

R65_VANISHED = Case(
    entry="R65-b",
    title="a GPU is in no report for a while: its runner is left alone",
    known=(Known.REPORT,),
    source=("ollama/ollama#5464", "ollama/ollama#10053"),
    scenario=Scenario(
        gpus=(20, 24),
        models={"a": 10, "b": 10},
        requests=(
            Request(model="a", tokens=100, pause=0.2),
            Request(model="b", at=6),
            Request(model="a", at=30),
        ),
        faults=(
            Fault(at=5, what=What.VANISH, target="GPU-1"),
            Fault(at=20, what=What.VANISH, target="GPU-1", amount=0),
        ),
    ),
    requires=_found_again,
    control_passes="it knows its runners by their GPU, too",
)


# -- R66 ----------------------------------------------------------------------------------------------------------


def _ram_is_enough(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from within(run, CPU, 16)


R66 = Case(
    entry="R66",
    title="on the CPU, models are loaded until the RAM is exhausted",
    known=(Known.CODE,),
    source=("S003 processPending", "S000 load"),
    scenario=Scenario(
        gpus=(),
        ram=16,
        models={"a": 10, "b": 10},
        requests=(Request(model="a"), Request(model="b", at=5)),
    ),
    requires=_ram_is_enough,
)

R66_BESIDE = Case(
    entry="R66-b",
    title="with num_gpu 0 the same, beside GPUs",
    known=(Known.CODE,),
    source=("S003 processPending", "S000 processPending"),
    scenario=Scenario(
        ram=16,
        models={"a": 10, "b": 10},
        requests=(Request(model="a", num_gpu=0), Request(model="b", num_gpu=0, at=5)),
    ),
    requires=_ram_is_enough,
)


CASES: Final = (R62, R63, R63_GROUP, R63_SECOND, R64, R65, R65_VANISHED, R66, R66_BESIDE)
