"""Memory that comes back late, or not at all, or to others (R31-R37)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Limits

from .case import Case, Known
from .ingredients import EXIT, LOAD, ONE_AT_A_TIME, trouble_until
from .requirements import MOMENT, answered, end, launched, processes, stopped

__all__ = ["CASES", "NOT_HERE"]

POLL: Final = Limits().recovery_poll
LIMIT: Final = Limits().recovery


def _lag(seconds: float) -> tuple[Fault, Fault]:
    """Reports are that old from 3 to 40."""
    return Fault(at=3, what=What.LAG, amount=seconds), trouble_until(40)


def _whole(run: Run, model: str) -> Iterator[str]:
    """All of the model's processes started on memory that was there, and was seen to be there."""
    for process in processes(run, model):
        if process.beside_gpus:
            short = process.beside_gpus / (1 << 30)
            yield f"process {process.pid} of {model} has {short:.1f} GiB in RAM, for which it found no room"
        if process.overfull:
            yield f"process {process.pid} of {model} took memory that was not there"


# -- R31 ----------------------------------------------------------------------------------------------------------


def _when_seen(run: Run) -> Iterator[str]:
    yield from _whole(run, "b")
    yield from answered(run, 1, by=10 + EXIT + 2 + POLL + LOAD + MOMENT)


R31 = Case(
    entry="R31",
    title="the memory of a model that went is waited for until reports show it",
    known=(Known.CODE,),
    source=("S000 waitForVRAMRecovery", "S003 waitForVRAMRecovery"),
    scenario=Scenario(models=ONE_AT_A_TIME, requests=(Request(model="x"), Request(model="b", at=10)), faults=_lag(2)),
    requires=_when_seen,
    control_passes="the rule is upstream's own; its faults are R32 to R36",
)


def _not_for_ever(run: Run) -> Iterator[str]:
    yield from answered(run, 1, by=10 + EXIT + LIMIT + POLL + LOAD + MOMENT)


R31_B = Case(
    entry="R31-b",
    title="memory that no report shows is waited for no longer than the limit",
    known=(Known.CODE,),
    source=R31.source,
    scenario=Scenario(models=ONE_AT_A_TIME, requests=(Request(model="x"), Request(model="b", at=10)), faults=_lag(8)),
    requires=_not_for_ever,
    control_passes=R31.control_passes,
)


# -- R32 ----------------------------------------------------------------------------------------------------------
# x goes at 10, which reports show at 13. At 11 they show what another program has taken: less is free than before.


def _not_fooled(run: Run) -> Iterator[str]:
    yield from _whole(run, "b")
    yield from answered(run, 1, by=10 + EXIT + 3 + POLL + LOAD + MOMENT)
    if any(process.spec.visible_devices != ("GPU-0",) for process in processes(run, "b")):
        yield "b was put on the CPU"


R32 = Case(
    entry="R32",
    title="free memory falls while it is waited for, and the difference wraps to a huge number",
    known=(Known.CODE,),
    source=("S000 waitForVRAMRecovery", "S003 waitForVRAMRecovery"),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        requests=(Request(model="x"), Request(model="b", at=10)),
        faults=(Fault(at=8, what=What.FOREIGN, target="GPU-0", amount=2), *_lag(3)),
    ),
    requires=_not_fooled,
)

R32_B = Case(
    entry="R32-b",
    title="a look at the machine fails meanwhile: no GPU is no free memory, less than before",
    known=(Known.CODE,),
    source=R32.source,
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        requests=(Request(model="x"), Request(model="b", at=10)),
        faults=(
            Fault(at=10.2, what=What.QUERIES_FAIL),
            Fault(at=11.2, what=What.QUERIES_FAIL, amount=0),
            *_lag(3),
        ),
    ),
    requires=_not_fooled,
    older=True,
)


# -- R33 ----------------------------------------------------------------------------------------------------------


def _three_times(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    yield from launched(run, "x", 3)


R33 = Case(
    entry="R33",
    title="whoever waits for memory goes on after the limit, and is left for ever",
    known=(Known.CODE,),
    source=("S003 waitForVRAMRecovery",),
    scenario=Scenario(
        requests=tuple(Request(model="x", at=at, keep_alive=1) for at in (0, 20, 40)),
        faults=(Fault(at=0, what=What.LAG, amount=60), trouble_until(60)),
    ),
    requires=_three_times,
    older=True,
)


# -- R34 ----------------------------------------------------------------------------------------------------------


def _at_once(run: Run) -> Iterator[str]:
    yield from answered(run, 1, by=10 + LOAD + MOMENT)


R34 = Case(
    entry="R34",
    title="a crashed model's memory is waited for although it came back long ago",
    known=(Known.CODE, Known.REPORT),
    source=("ollama/ollama#11997", "ollama/ollama#7130", "ollama/ollama#7144", "ollama/ollama#9160"),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        launches={"x": (Behaviour(dies_idle=3),)},
        requests=(Request(model="x"), Request(model="b", at=10)),
        faults=(trouble_until(30),),
    ),
    requires=_at_once,
)


def _soon(run: Run) -> Iterator[str]:
    yield from answered(run, 1, by=10 + 1 + LOAD + MOMENT)


R34_B = Case(
    entry="R34-b",
    title="another program takes part of what comes back: the rest is waited for to the limit",
    known=R34.known,
    source=R34.source,
    scenario=Scenario(
        models={"x": 14.0, "b": 10.0},
        requests=(Request(model="x"), Request(model="b", at=10)),
        faults=(Fault(at=10.1, what=What.FOREIGN, target="GPU-0", amount=6), *_lag(0.3)),
    ),
    requires=_soon,
)


# -- R35 ----------------------------------------------------------------------------------------------------------
# x expires at 7.06, which reports show at 10.11. b comes at 7.5, when no model is there any more.


def _waits_for_what_comes(run: Run) -> Iterator[str]:
    yield from _whole(run, "b")
    yield from answered(run, 1, by=7.06 + EXIT + 3 + POLL + LOAD + MOMENT)


R35 = Case(
    entry="R35",
    title="a load starts on memory that is still coming back, and stays on the CPU for good",
    known=(Known.CODE, Known.REPORT),
    source=("S000 processCompleted", "S003 processCompleted", "ollama/ollama#724", "ollama/ollama#11812"),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        requests=(Request(model="x", keep_alive=5), Request(model="b", at=7.5)),
        faults=_lag(3),
    ),
    requires=_waits_for_what_comes,
)


# -- R36 ----------------------------------------------------------------------------------------------------------
# x is on GPU-0, y on GPU-1 with a long answer. x goes at 10, which reports show at 13; that another program has left
# GPU-1, they show at 12.


def _looks_at_its_own_gpu(run: Run) -> Iterator[str]:
    yield from _whole(run, "b")
    yield from answered(run, 2, by=10 + EXIT + 3 + POLL + LOAD + MOMENT)
    if any(process.spec.visible_devices != ("GPU-0",) for process in processes(run, "b")):
        yield "b was not put on the GPU that was emptied for it"


R36 = Case(
    entry="R36",
    title="memory that comes back on one GPU is taken for what was waited for on another",
    known=(Known.CODE,),
    source=("S000 waitForVRAMRecovery",),
    scenario=Scenario(
        gpus=(24, 24),
        models={"x": 14.0, "y": 10.0, "b": 14.0},
        requests=(
            Request(model="x"),
            Request(model="y", at=3, tokens=100, pause=0.4),
            Request(model="b", at=10),
        ),
        faults=(
            Fault(at=6, what=What.FOREIGN, target="GPU-1", amount=12),
            Fault(at=9, what=What.FOREIGN, target="GPU-1", amount=-12),
            *_lag(3),
        ),
    ),
    requires=_looks_at_its_own_gpu,
)


def _expires_in_time(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    ended = end(run.clients[1])
    yield from stopped(run, "y", after=ended + 0.99, by=ended + 1 + MOMENT)


R36_B = Case(
    entry="R36-b",
    title="while one model's memory is waited for, no end of any request is noticed",
    known=(Known.CODE,),
    source=("S000 processCompleted",),
    scenario=Scenario(
        gpus=(24, 24),
        models={"x": 14.0, "y": 14.0},
        requests=(
            Request(model="x", keep_alive=8),
            Request(model="y", at=3, tokens=27, pause=0.2, keep_alive=1),
        ),
        faults=_lag(20),
    ),
    requires=_expires_in_time,
)


# -- R37 ----------------------------------------------------------------------------------------------------------


def _room_is_made(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    for process in run.processes:
        if process.overfull:
            yield f"process {process.pid} of {process.spec.model} took memory that was not there"


R37 = Case(
    entry="R37",
    title="reports do not show yet what was just loaded",
    known=(Known.CODE, Known.TEST),
    source=("TestSchedUpdateFreeSpace", "TestSchedulerTracksMultipleLoadedRunners"),
    scenario=Scenario(
        models=ONE_AT_A_TIME,
        requests=(Request(model="x", at=0.5), Request(model="b", at=3)),
        faults=(Fault(at=0, what=What.LAG, amount=3), trouble_until(30)),
    ),
    requires=_room_is_made,
    control_passes="the rule is upstream's own",
)

R37_B = Case(
    entry="R37-b",
    title="another program takes memory during a load",
    known=(Known.CODE, Known.TEST),
    source=R37.source,
    scenario=Scenario(
        models={"x": 14.0, "b": 5.0},
        requests=(Request(model="x"), Request(model="b", at=3)),
        faults=(Fault(at=1.5, what=What.FOREIGN, target="GPU-0", amount=6), trouble_until(30)),
    ),
    requires=_room_is_made,
    control_passes="the rule is upstream's own",
)


CASES: Final = (R31, R31_B, R32, R32_B, R33, R34, R34_B, R35, R36, R36_B, R37, R37_B)
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType({})
"""Entries of this part that no scenario can show, and the tests that do."""
