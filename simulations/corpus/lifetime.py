"""Whose runner is it, and is it there at all: users, ends and successors of processes (R12-R15, R18-R20)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .requirements import MOMENT, answered, cancelled, failed, generations, launched, never_two

__all__ = ["CASES", "NOT_HERE"]


# -- R12 ----------------------------------------------------------------------------------------------------------


def _nobody_gets_a_dead_runner(run: Run) -> Iterator[str]:
    yield from answered(run, *range(len(run.clients)), by=7 + 5 + 5 + 2 + 4 * MOMENT)
    yield from never_two(run, "a")


R12 = Case(
    entry="R12",
    title="the keep-alive ends between the look at a runner and its use",
    known=(Known.CODE, Known.REPORT),
    source=("S000 getRunner", "S003 processPending", "ollama/ollama#17316", "ollama/ollama#4203"),
    scenario=Scenario(
        policy=Policy(num_parallel=4),
        requests=(Request(tokens=0, keep_alive=5), *(Request(at=7) for _ in range(3))),
    ),
    requires=_nobody_gets_a_dead_runner,
    schedules=range(50),
)


def _nobody_waits_in_vain(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from answered(run, 2, by=8 + 5 + 2 + MOMENT)
    yield from never_two(run, "a")


R12_QUEUE = Case(
    entry="R12-b",
    title="the keep-alive of a runner is over and its end is due, while a request looks at it for long",
    known=(Known.CODE, Known.REPORT),
    source=("S003 processPending", "ollama/ollama#4187"),
    scenario=Scenario(
        requests=(
            Request(tokens=0, keep_alive=5),
            Request(model="b", at=3, tokens=0, keep_alive=1.9),  # its end keeps that of `a` waiting
            Request(at=7.05),
        ),
        faults=(Fault(at=6, what=What.HANG, target="a"), Fault(at=8, what=What.HANG, target="a", amount=0)),
    ),
    requires=_nobody_waits_in_vain,
    older=True,
)


# -- R13 ----------------------------------------------------------------------------------------------------------


def _successor_is_kept(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 2, 3)
    yield from generations(run, 2, 3)


R13 = Case(
    entry="R13",
    title="the end of a lease on a runner that is gone ends its successor",
    known=(Known.CODE, Known.TEST),
    source=("S000 processCompleted", "S003 processCompleted"),
    scenario=Scenario(
        policy=Policy(num_parallel=4, keep_alive=5 * 10**9),
        requests=(
            Request(tokens=0),
            Request(at=7, tokens=0, slot=False, hold=20),
            Request(at=20, tokens=4, pause=10),
            Request(at=50),
        ),
        faults=(Fault(at=15, what=What.CRASH, target="a"),),
    ),
    requires=_successor_is_kept,
    schedules=range(50),
)


# -- R14 ----------------------------------------------------------------------------------------------------------


def _successor_lives(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 2, 3)
    yield from generations(run, 2, 3)
    yield from launched(run, "a", 2)
    yield from never_two(run, "a")


def _two_reasons(first: Request, behaviour: Behaviour) -> Scenario:
    """The unload of `b` is what the second request for `a` takes for the one that it waits for."""
    return Scenario(
        launches={"a": (behaviour,)},
        requests=(
            Request(model="b", tokens=0, keep_alive=4),
            first,
            Request(at=5.5, num_ctx=8192, tokens=100),
            Request(at=30, num_ctx=8192),
        ),
    )


def _after_the_failure(run: Run) -> Iterator[str]:
    yield from failed(run, 1, text="no such tensor")
    yield from _successor_lives(run)


R14 = Case(
    entry="R14",
    title="a load fails, its runner is to go for two reasons, and the second one hits the successor",
    known=(Known.CODE, Known.REPORT),
    source=("S003 processCompleted", "ollama/ollama#10599", "ollama/ollama#10819"),
    scenario=_two_reasons(Request(at=5, num_ctx=4096), Behaviour(refuses_to_load="no such tensor")),
    requires=_after_the_failure,
    older=True,
)


def _after_the_abort(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1)
    yield from _successor_lives(run)


R14_CANCELLED = Case(
    entry="R14-b",
    title="a load is cancelled, its runner is to go for two reasons, and the second one hits the successor",
    known=(Known.CODE, Known.REPORT),
    source=("S003 processCompleted", "ollama/ollama#10819"),
    scenario=_two_reasons(Request(at=5, num_ctx=4096, leaves=6.8), Behaviour()),
    requires=_after_the_abort,
    older=True,
)


# -- R15 ----------------------------------------------------------------------------------------------------------


def _one_after_the_other(run: Run) -> Iterator[str]:
    yield from answered(run, *range(6))
    yield from never_two(run, "a")


R15 = Case(
    entry="R15",
    title="a successor is loaded while its predecessor still ends",
    known=(Known.CODE,),
    source=("S000 load",),
    scenario=Scenario(
        usual=Behaviour(term_time=1.5),
        requests=tuple(Request(at=1.3 * n, num_ctx=4096 << n % 2) for n in range(6)),
    ),
    requires=_one_after_the_other,
    schedules=range(20),
    control_passes="its loads come one after the other, each once the key is free: the branch that closes an old "
    "entry cannot be reached",
)


# -- R18 ----------------------------------------------------------------------------------------------------------


def _failure_is_over(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=2 + MOMENT, text="no such tensor")
    yield from answered(run, 3, 4, by=2.5 + 2 * 2 + 1 + 4 * MOMENT)
    yield from never_two(run, "a")


R18 = Case(
    entry="R18",
    title="a load fails while others come for the model",
    known=(Known.CODE, Known.TEST),
    source=("S003 load",),
    scenario=Scenario(
        usual=Behaviour(term_time=1),
        launches={"a": (Behaviour(refuses_to_load="no such tensor", term_time=1),)},
        requests=(Request(), Request(at=1), Request(at=1.5), Request(at=2.2), Request(model="b", at=2.5)),
    ),
    requires=_failure_is_over,
    schedules=range(20),
    older=True,
)


# -- R19 ----------------------------------------------------------------------------------------------------------

HERD: Final = 100


def _one_load_for_all(run: Run) -> Iterator[str]:
    stayed = [number for number in range(HERD) if number % 2]
    yield from cancelled(run, *(number for number in range(HERD) if not number % 2))
    yield from answered(run, *stayed)
    yield from generations(run, *stayed)
    yield from launched(run, "a", 1)


R19 = Case(
    entry="R19",
    title="a hundred requests for one cold model, of which every second leaves during the load",
    known=(Known.TEST, Known.REPORT),
    source=("ollama/ollama#4187",),
    scenario=Scenario(
        usual=Behaviour(load_time=10),
        policy=Policy(num_parallel=4),
        requests=tuple(Request(leaves=None if n % 2 else 1 + n / 12) for n in range(HERD)),
    ),
    requires=_one_load_for_all,
)


CASES: Final = (
    R12,
    R12_QUEUE,
    R13,
    R14,
    R14_CANCELLED,
    R15,
    R18,
    R19,
)

NOT_HERE: Final = {
    "R20": "what is loaded is asked for at every step of all cases: tests/simulations/test_corpus_early.py",
}
"""What of an entry needs more than this world has, and where it is tested."""
