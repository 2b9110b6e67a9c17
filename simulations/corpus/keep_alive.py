"""How long a runner stays when nobody uses it: timers, and whose wish counts (R21-R24, R27-R29)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import TWO_SLOTS
from .requirements import (
    MOMENT,
    answered,
    end,
    failed,
    generations,
    stopped,
    unharmed,
)

__all__ = ["CASES", "NOT_HERE"]

SECOND: Final = 10**9


# -- R21 ----------------------------------------------------------------------------------------------------------


def _request_wins(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from answered(run, 1, by=8 + 1 + MOMENT)
    yield from answered(run, 2, by=60 + MOMENT)
    yield from generations(run, 0, 1, 2)


R21 = Case(
    entry="R21",
    title="the keep-alive ends while a request is looked at, which wants the model for long",
    known=(Known.CODE,),
    source=("S000 useLoadedRunner", "S003 useLoadedRunner", "S000 processCompleted"),
    scenario=Scenario(
        requests=(Request(tokens=0, keep_alive=5), Request(at=6.5, tokens=90, keep_alive=300), Request(at=60)),
        faults=(
            # It does not even say that it is well, until the eighth second.
            Fault(at=6, what=What.HANG, target="a"),
            Fault(at=8, what=What.HANG, target="a", amount=0),
        ),
    ),
    requires=_request_wins,
    schedules=range(20),
)

R21_TIE = Case(
    entry="R21-b",
    title="the keep-alive ends in the instant of a request, which wants the model for long",
    known=(Known.CODE,),
    source=("S000 useLoadedRunner", "S003 useLoadedRunner", "S000 processCompleted"),
    scenario=Scenario(
        requests=(Request(tokens=0, keep_alive=5), Request(at=7, tokens=90, keep_alive=300), Request(at=60)),
    ),
    requires=_request_wins,
    schedules=range(50),
)


# -- R22 ----------------------------------------------------------------------------------------------------------

STEPS: Final = 1000
"""Steps of all tasks in a run in which next to nothing happens."""


def _nothing_polls(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    if run.steps > STEPS:
        yield f"{run.steps} steps for two requests"
    yield from stopped(run, "a", after=6.5 + 280 + 60, by=8 + 280 + 60)


R22 = Case(
    entry="R22",
    title="the keep-alive ends while a request is looked at, which then runs for minutes",
    known=(Known.CODE, Known.TEST),
    source=("S000 processCompleted", "S003 processCompleted"),
    scenario=Scenario(
        requests=(Request(tokens=0, keep_alive=5), Request(at=6.5, tokens=0, hold=280, keep_alive=60)),
        faults=(Fault(at=6, what=What.HANG, target="a"), Fault(at=8, what=What.HANG, target="a", amount=0)),
    ),
    requires=_nothing_polls,
    schedules=range(20),
)


# -- R23 ----------------------------------------------------------------------------------------------------------


def _nobody_waits(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 3)
    yield from failed(run, 1, by=1 + MOMENT, text="server busy")
    yield from failed(run, 2, by=6 + MOMENT, text="server busy")
    yield from stopped(run, "a", after=12, by=12 + MOMENT)


R23 = Case(
    entry="R23",
    title="a queue bound of 0, and a runner that is to go at once",
    known=(Known.CODE,),
    source=("S000 processCompleted", "S003 processCompleted"),
    scenario=Scenario(
        policy=Policy(queue_bound=0),
        requests=(
            Request(tokens=0, hold=10, keep_alive=0),
            Request(model="b", at=1),
            Request(at=6),
            Request(at=30, keep_alive=0),
        ),
    ),
    requires=_nobody_waits,
)


def _all_go(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    for model in "abc":
        yield from stopped(run, model, after=30, by=30 + 2)
    yield from answered(run, 3, by=100 + 2 + MOMENT)


def _together(bound: int) -> Scenario:
    return Scenario(
        policy=Policy(queue_bound=bound),
        requests=(
            *(Request(model=name, at=5 * n, tokens=0, hold=28 - 5 * n, keep_alive=0) for n, name in enumerate("abc")),
            Request(model="a", at=100),
        ),
    )


R23_ONE = Case(
    entry="R23-b",
    title="a queue bound of 1, and three runners that are to go at once",
    known=(Known.CODE,),
    source=("S000 processCompleted", "S003 processCompleted"),
    scenario=_together(1),
    requires=_all_go,
    schedules=range(30),
)

R23_TWO = Case(
    entry="R23-c",
    title="a queue bound of 2, and three runners that are to go at once",
    known=(Known.CODE,),
    source=("S000 processCompleted", "S003 processCompleted"),
    scenario=_together(2),
    requires=_all_go,
    schedules=range(30),
)


# -- R24 ----------------------------------------------------------------------------------------------------------


SAME: Final = "the last one granted decides, in the Go scheduler as well"


def _last_one_decides(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from stopped(run, "a", after=12, by=12 + MOMENT)


R24 = Case(
    entry="R24",
    title="one wants a model for ever, the next one not at all",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("ollama/ollama#9355", "ollama/ollama#11458"),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=(Request(tokens=0, hold=10, keep_alive=-1), Request(at=5, keep_alive=0)),
    ),
    requires=_last_one_decides,
    control_passes=SAME,
)

R24_ABSENT = Case(
    entry="R24-b",
    title="one wants a model not at all, the next one does not say",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("ollama/ollama#10263",),
    scenario=Scenario(policy=TWO_SLOTS, requests=(Request(tokens=0, hold=10, keep_alive=0), Request(at=5))),
    requires=_last_one_decides,
    control_passes=SAME,
)


def _stays_ten_minutes(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    last = end(run.clients[1])
    yield from stopped(run, "a", after=last + 600, by=last + 600 + MOMENT)


R24_STAYS = Case(
    entry="R24-c",
    title="one wants a model for ten minutes, a later one does not say",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("ollama/ollama#10263",),
    scenario=Scenario(requests=(Request(keep_alive=600), Request(at=100))),
    requires=_stays_ten_minutes,
    control_passes=SAME,
)


# -- R27 ----------------------------------------------------------------------------------------------------------


def _for_ever(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from unharmed(run, "a", until=1e6)
    last = end(run.clients[1])
    yield from stopped(run, "b", after=last, by=last + 0.001)


R27 = Case(
    entry="R27",
    title="a keep-alive for ever, and one of half a millisecond",
    known=(Known.CODE, Known.REPORT),
    source=("skalesapp/skales#281",),
    scenario=Scenario(requests=(Request(keep_alive=-1), Request(model="b", keep_alive=0.0005))),
    requires=_for_ever,
    control_passes="the fault is in reading the words for a duration, which both get read here",
)


# -- R29 ----------------------------------------------------------------------------------------------------------


def _counts_from_the_end(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from stopped(run, "a", after=2 + 300 + 480, by=2 + 300 + 480)


R29 = Case(
    entry="R29",
    title="a request that runs for five of the eight minutes that the model is to stay",
    known=(Known.REPORT,),
    source=("ollama/ollama#9577",),
    scenario=Scenario(requests=(Request(tokens=0, hold=300, keep_alive=480),)),
    requires=_counts_from_the_end,
    control_passes="its timer starts at the last end, too",
)

R29_SHORT = Case(
    entry="R29-b",
    title="a request that runs for longer than the model is to stay",
    known=(Known.REPORT,),
    source=("mostlygeek/llama-swap#25",),
    scenario=Scenario(requests=(Request(tokens=0, hold=780 - 8, keep_alive=8),)),
    requires=_counts_from_the_end,
    control_passes="its timer starts at the last end, too",
)


CASES: Final = (
    R21,
    R21_TIE,
    R22,
    R23,
    R23_ONE,
    R23_TWO,
    R24,
    R24_ABSENT,
    R24_STAYS,
    R27,
    R29,
    R29_SHORT,
)

NOT_HERE: Final = {
    "R27": "the words for a duration: tests/test_durations.py",
    "R28": "when a runner is said to go: tests/server/routes/test_status.py, tests/simulations/test_corpus_early.py",
}
"""What of an entry needs more than this world has, and where it is tested."""
