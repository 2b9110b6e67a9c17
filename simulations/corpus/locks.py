"""What is slow, or holds a lock, stands in nobody's way (R16, R17)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import TWO_SLOTS
from .requirements import MOMENT, answered

__all__ = ["CASES", "NOT_HERE"]


# -- R16 ----------------------------------------------------------------------------------------------------------


def _nobody_is_stuck(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    yield from answered(run, 3, by=20 + 5 + 2 + 2 * MOMENT)
    yield from answered(run, 4, by=40 + 2 + 2 * MOMENT)


R16 = Case(
    entry="R16",
    title="a model goes and another one is placed, in one instant",
    known=(Known.CODE, Known.REPORT),
    source=("S003 updateFreeSpace", "ollama/ollama#10487"),
    scenario=Scenario(
        policy=Policy(max_models=10),
        requests=(
            Request(model="a"),
            Request(model="b", at=3),
            Request(model="c", at=6, tokens=0, keep_alive=12),
            Request(model="d", at=19),
            Request(model="e", at=40),
        ),
        faults=(
            # The look at the GPUs that comes before the placement ends in the very instant.
            Fault(at=18, what=What.QUERY_TIME, amount=1),
            Fault(at=19.5, what=What.QUERY_TIME, amount=0),
        ),
    ),
    requires=_nobody_is_stuck,
    schedules=range(50),
    older=True,
)


def _loaded_ones_are_free(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    yield from answered(run, 3, by=10 + MOMENT)


R16_LOAD = Case(
    entry="R16-b",
    title="a load takes a minute, another one is to be placed: nobody gets what is loaded",
    known=(Known.CODE, Known.REPORT),
    source=("S003 updateFreeSpace", "ollama/ollama#10487"),
    scenario=Scenario(
        launches={"b": (Behaviour(load_time=60),)},
        requests=(
            Request(model="a"),
            Request(model="b", at=5),
            Request(model="c", at=6),
            Request(model="a", at=10),
        ),
    ),
    requires=_loaded_ones_are_free,
    older=True,
)


# -- R17 ----------------------------------------------------------------------------------------------------------


def _others_go_on(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from answered(run, 2, by=18 + MOMENT)


R17 = Case(
    entry="R17",
    title="a look at the GPUs takes thirty seconds while a model goes",
    known=(Known.CODE,),
    source=("S000 processCompleted", "ollama/ollama#3489"),
    scenario=Scenario(
        requests=(
            Request(model="a"),
            Request(model="b", at=5, tokens=0, keep_alive=10),
            Request(model="a", at=18),
            Request(model="a", at=100),
        ),
        faults=(Fault(at=10, what=What.QUERY_TIME, amount=30),),
    ),
    requires=_others_go_on,
)

R17_EXIT = Case(
    entry="R17-b",
    title="a process takes a minute to end",
    known=(Known.CODE,),
    source=("S000 processCompleted", "ollama/ollama#3489"),
    scenario=Scenario(
        launches={"b": (Behaviour(term_time=None, kill_time=60),)},
        requests=(
            Request(model="a"),
            Request(model="b", at=5, tokens=0, keep_alive=10),
            Request(model="a", at=18),
            Request(model="a", at=100),
        ),
    ),
    requires=_others_go_on,
)


def _hung_one_is_alone(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from answered(run, 3, by=32 + 2 + MOMENT)


R17_PING = Case(
    entry="R17-c",
    title="a loaded model does not answer, and another one is wanted",
    known=(Known.CODE,),
    source=("S000 needsReload", "ollama/ollama#3489"),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=(
            Request(model="a"),
            Request(model="b", at=5),
            Request(model="a", at=20),
            Request(model="c", at=32),
        ),
        faults=(Fault(at=10, what=What.HANG, target="a"), Fault(at=200, what=What.CRASH, target="a")),
    ),
    requires=_hung_one_is_alone,
)


CASES: Final = (
    R16,
    R16_LOAD,
    R17,
    R17_EXIT,
    R17_PING,
)

NOT_HERE: Final = {
    "R17": "reading a model's file takes no time here: tests/scheduler/test_shell_loads.py",
}
"""What of an entry needs more than this world has, and where it is tested."""
