"""A model is stopped or deleted, while it is used, loaded, or idle (R25, R26, R30)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import TWO_SLOTS
from .requirements import (
    MOMENT,
    answered,
    cancelled,
    launched,
    never_two,
    processes,
    stopped,
)

__all__ = ["CASES", "NOT_HERE"]

LONG_LOAD: Final = Behaviour(load_time=10)


# -- R25 ----------------------------------------------------------------------------------------------------------


def _stop_is_kept(run: Run) -> Iterator[str]:
    yield from answered(run, 0, by=12 + MOMENT)
    yield from stopped(run, "a", after=12, by=12 + MOMENT)
    yield from answered(run, 1, by=12 + 3 + MOMENT)
    yield from launched(run, "a", 2)
    yield from never_two(run, "a")


R25 = Case(
    entry="R25",
    title="a stop while a model is used, forgotten for the next request",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("S000 expireRunner", "ollama/ollama#6739"),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=(Request(tokens=0, hold=10), Request(at=6, keep_alive=300)),
        faults=(
            Fault(at=5, what=What.STOP, target="a"),
            Fault(at=5.5, what=What.STOP, target="a"),
            Fault(at=5.5, what=What.STOP, target="nobody"),
        ),
    ),
    requires=_stop_is_kept,
)


def _stream_is_no_hindrance(run: Run) -> Iterator[str]:
    yield from answered(run, *range(20))
    yield from launched(run, "a", 2)
    yield from launched(run, "nobody", 0)
    first = processes(run, "a")[0].signals
    if not first or first[0][0] > 10:
        yield "the stopped one is used on by later requests"


R25_STREAM = Case(
    entry="R25-b",
    title="a stop while a model is used by a stream of requests, one beginning before another ends",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("S000 expireRunner", "ollama/ollama#6739"),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=tuple(Request(at=2 * n, tokens=0, hold=3) for n in range(20)),
        faults=(Fault(at=5, what=What.STOP, target="a"),),
    ),
    requires=_stream_is_no_hindrance,
)


# -- R26 ----------------------------------------------------------------------------------------------------------


def _served_then_gone(run: Run) -> Iterator[str]:
    yield from answered(run, 0, by=10 + MOMENT)
    yield from stopped(run, "a", after=10, by=10 + MOMENT)


R26 = Case(
    entry="R26",
    title="a stop while a model is loaded",
    known=(Known.CODE,),
    source=("S000 expireRunner", "ollama/ollama-python#259"),
    scenario=Scenario(
        usual=LONG_LOAD,
        requests=(Request(), Request(model="b", at=100)),
        faults=(Fault(at=5, what=What.STOP, target="a"),),
    ),
    requires=_served_then_gone,
)


def _load_is_given_up(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from stopped(run, "a", after=3, by=5)


R26_NOBODY = Case(
    entry="R26-b",
    title="a stop while a model is loaded for nobody any more",
    known=(Known.CODE,),
    source=("S000 expireRunner",),
    scenario=Scenario(
        usual=LONG_LOAD,
        policy=Policy(finish_abandoned_load=True),
        requests=(Request(leaves=3), Request(model="b", at=100)),
        faults=(Fault(at=5, what=What.STOP, target="a"),),
    ),
    requires=_load_is_given_up,
    control_passes="none of its loads goes on when the first requester has left",
)


# -- R30 ----------------------------------------------------------------------------------------------------------


def _old_one_is_out_of_reach(run: Run) -> Iterator[str]:
    yield from _stop_is_kept(run)
    if run.clients[1].generation == run.clients[0].generation:
        yield "the deleted model serves a request that came after"


R30 = Case(
    entry="R30",
    title="a model is deleted while it is used, and made anew",
    known=(Known.REPORT,),
    source=("ollama/ollama#4443",),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=(Request(tokens=0, hold=10), Request(at=6)),
        faults=(Fault(at=5, what=What.STOP, target="a"),),
    ),
    requires=_old_one_is_out_of_reach,
)


def _idle_one_goes(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from stopped(run, "a", after=5, by=5)


R30_IDLE = Case(
    entry="R30-b",
    title="a model is deleted while it is loaded and idle",
    known=(Known.REPORT,),
    source=("ollama/ollama#4443",),
    scenario=Scenario(
        requests=(Request(), Request(at=6)),
        faults=(Fault(at=5, what=What.STOP, target="a"),),
    ),
    requires=_idle_one_goes,
    control_passes="its delete, which leaves the runner alone, is not told apart from its stop here",
)


CASES: Final = (
    R25,
    R25_STREAM,
    R26,
    R26_NOBODY,
    R30,
    R30_IDLE,
)

NOT_HERE: Final = {
    "R30": "which runner a delete concerns: tests/server/routes/test_store.py",
}
"""What of an entry needs more than this world has, and where it is tested."""
