"""When a loaded model serves a request, and when it has to be loaded anew (R58-R61)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import LOAD, trouble_until
from .requirements import MOMENT, answered, end, launched, never_two, unharmed

__all__ = ["CASES", "NOT_HERE"]


def _reloads(*numbers: int) -> Callable[[Run], Iterator[str]]:
    """Each client has the runner of the one before it, except these."""

    def requires(run: Run) -> Iterator[str]:
        yield from answered(run, *range(len(run.clients)))
        for number in range(1, len(run.clients)):
            before, now = run.clients[number - 1], run.clients[number]
            if (now.generation != before.generation) != (number in numbers):
                yield f"{now.name} was {'' if number not in numbers else 'not '}given a new runner"

    return requires


def _in_turn(*options: Mapping[str, object]) -> tuple[Request, ...]:
    return tuple(Request(model="x", at=10 * number, options=changes) for number, changes in enumerate(options))


# -- R58 ----------------------------------------------------------------------------------------------------------

BATCH: Final = {"num_batch_auto": False}
CHOSEN: Final = {"num_ctx_auto": False}
SAME: Final = "the rules are upstream's own"

R58 = Case(
    entry="R58",
    title="layers and batch: what is the same",
    known=(Known.TEST,),
    source=("TestSchedNeedsReload",),
    scenario=Scenario(
        requests=_in_turn(
            {},
            {},
            {"num_gpu": 99},
            {"num_gpu": -1},
            {"num_batch": 256, **BATCH},
            {"num_batch": 256, **BATCH},
            {"num_batch": 128, **BATCH},
        )
    ),
    requires=_reloads(2, 4, 6),
    control_passes=SAME,
)

R58_B = Case(
    entry="R58-b",
    title="contexts: automatic ones are the same, chosen ones are not",
    known=R58.known,
    source=R58.source,
    scenario=Scenario(
        requests=_in_turn(
            {"num_ctx": 131072},
            {"num_ctx": 262144},
            {"num_ctx": 262144, **CHOSEN},
            {"num_ctx": 262144, **CHOSEN},
            {"num_ctx": 1024, **CHOSEN},
        )
    ),
    requires=_reloads(2, 4),
    control_passes=SAME,
)

R58_C = Case(
    entry="R58-c",
    title="what happens to a full context is fixed at the start",
    known=R58.known,
    source=R58.source,
    scenario=Scenario(requests=_in_turn({}, {"shift": True}, {"shift": False}, {"shift": False}, {})),
    requires=_reloads(2, 4),
    control_passes=SAME,
)


# -- R59 ----------------------------------------------------------------------------------------------------------

THRASH: Final = ("ollama/ollama#8029", "ollama/ollama#8903")


def _one_load(run: Run) -> Iterator[str]:
    yield from answered(run, *range(len(run.clients)))
    yield from launched(run, "x", 1)


R59 = Case(
    entry="R59",
    title="one client chooses a context, the other one none: they reload the model in turn",
    known=(Known.REPORT,),
    source=THRASH,
    scenario=Scenario(
        requests=tuple(Request(model="x", at=4 * at, num_ctx=None if at % 2 else 65536) for at in range(10))
    ),
    requires=_one_load,
)


def _few_loads(run: Run) -> Iterator[str]:
    yield from answered(run, *range(len(run.clients)))
    yield from never_two(run, "x")
    if run.launches("x") > 5:
        yield f"{run.launches('x')} loads for 12 requests"


R59_B = Case(
    entry="R59-b",
    title="two clients choose different contexts: a reload for each request",
    known=(Known.REPORT,),
    source=THRASH,
    scenario=Scenario(
        requests=tuple(Request(model="x", at=0.1 * at, num_ctx=8192 if at % 2 else 65536) for at in range(12))
    ),
    requires=_few_loads,
)


# -- R60 ----------------------------------------------------------------------------------------------------------
# From 5 to 40 the child is too busy to answer anything, also whether it is well. At 6 somebody else wants it.


def _left_alone(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from launched(run, "x", 1)
    yield from unharmed(run, "x", until=300)


R60 = Case(
    entry="R60",
    title="a child that is slow to say that it is well is taken for broken, and stopped",
    known=(Known.CODE,),
    source=("S000 needsReload", "S003 needsReload"),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        requests=(Request(model="x", tokens=40, pause=0.2), Request(model="x", at=6)),
        faults=(Fault(at=5, what=What.HANG, target="x"), trouble_until(40)),
    ),
    requires=_left_alone,
)


# -- R61 ----------------------------------------------------------------------------------------------------------
# x answers until 12. At 5 somebody wants it with another context, at 6 somebody with the one that it has.


def _in_order(run: Run) -> Iterator[str]:
    yield from answered(run, 1, by=end(run.clients[0]) + LOAD + 2 * MOMENT)
    yield from answered(run, 0, 2)
    yield from unharmed(run, "x", until=end(run.clients[0]))
    yield from never_two(run, "x")
    yield from launched(run, "x", 3)
    other, same = run.clients[1].granted_at, run.clients[2].granted_at
    if other is None or same is None or same < other:
        yield f"the other context came first; it was there at {other}, the old one at {same}"


R61 = Case(
    entry="R61",
    title="a reload waits for those that came after it",
    known=(Known.CODE,),
    source=("TestSchedRequestsSimpleReloadSameModel",),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        requests=(
            Request(model="x", tokens=50, pause=0.2, num_ctx=4096),
            Request(model="x", at=5, num_ctx=8192),
            Request(model="x", at=6, tokens=50, pause=0.2, num_ctx=4096),
        ),
    ),
    requires=_in_order,
)


CASES: Final = (R58, R58_B, R58_C, R59, R59_B, R60, R61)
NOT_HERE: Final[Mapping[str, str]] = {}
"""Entries of this part that no scenario can show, and the tests that do."""
