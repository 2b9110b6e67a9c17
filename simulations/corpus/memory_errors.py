"""Memory that runs out, during a load or later (R48-R52)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulations.scenarios import Fault, Request, Run, Scenario, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import LOAD, OUT_OF_MEMORY, trouble_until
from .requirements import MOMENT, answered, end, failed, launched, processes, stopped, unharmed

__all__ = ["CASES", "NOT_HERE"]

UPSTREAMS_OWN: Final = "the rule is upstream's own"


def _greedy(gib: float) -> Behaviour:
    """It takes so much more than was predicted, and says so if that is not there."""
    return Behaviour(surplus=gib, exit_lines=OUT_OF_MEMORY)


# -- R48 ----------------------------------------------------------------------------------------------------------
# c is thought to take 8 GiB, which fit beside x. In the middle of its load, at 11, it finds that it needs more.


def _tried_again_alone(run: Run) -> Iterator[str]:
    yield from answered(run, 1, by=11 + 0.5 + LOAD + MOMENT)
    yield from launched(run, "c", 2)
    yield from stopped(run, "x", after=11, by=11.1)


R48 = Case(
    entry="R48",
    title="a load runs out of memory beside others: they go, and it is tried once more",
    known=(Known.CODE, Known.TEST),
    source=("TestSchedLoadCrashTriggersEvictAllAndRetry",),
    scenario=Scenario(
        models={"x": 4.0, "c": 8.0},
        launches={"c": (_greedy(14), _greedy(14))},
        requests=(Request(model="x"), Request(model="c", at=10)),
        faults=(trouble_until(30),),
    ),
    requires=_tried_again_alone,
    control_passes=UPSTREAMS_OWN,
)


def _fails_twice(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from failed(run, 1, by=11 + 0.5 + LOAD + MOMENT, text=OUT_OF_MEMORY[0])
    yield from launched(run, "c", 2)


R48_B = Case(
    entry="R48-b",
    title="it runs out of memory alone, too: that is the end of it",
    known=R48.known,
    source=R48.source,
    scenario=Scenario(
        models={"x": 4.0, "c": 8.0},
        launches={"c": (_greedy(20),) * 4},
        requests=(Request(model="x"), Request(model="c", at=10)),
        faults=(trouble_until(30),),
    ),
    requires=_fails_twice,
    control_passes=UPSTREAMS_OWN,
)


def _fails_at_once(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=11 + MOMENT, text=OUT_OF_MEMORY[0])
    yield from launched(run, "c", 1)


R48_C = Case(
    entry="R48-c",
    title="it runs out of memory with nothing else loaded: trying again would be no use",
    known=R48.known,
    source=("TestSchedLoadCrashNoOtherModelsFailsFast",),
    scenario=Scenario(
        models={"c": 8.0},
        launches={"c": (_greedy(20),) * 4},
        requests=(Request(model="c", at=10),),
        faults=(trouble_until(30),),
    ),
    requires=_fails_at_once,
    control_passes=UPSTREAMS_OWN,
)


def _nobody_else_goes(run: Run) -> Iterator[str]:
    yield from failed(run, 1, by=11 + MOMENT, text="not a model")
    yield from launched(run, "c", 1)
    yield from unharmed(run, "x", until=300)


R48_D = Case(
    entry="R48-d",
    title="a load that fails for another reason stops nobody",
    known=R48.known,
    source=("TestSchedLoadCrashNonOOMWithOtherModelsFailsFast",),
    scenario=Scenario(
        models={"x": 4.0, "c": 8.0},
        launches={"c": (Behaviour(dies_loading=0.5, exit_lines=("not a model",)),)},
        requests=(Request(model="x"), Request(model="c", at=10)),
        faults=(trouble_until(30),),
    ),
    requires=_nobody_else_goes,
    control_passes=UPSTREAMS_OWN,
)


def _both_fail(run: Run) -> Iterator[str]:
    yield from failed(run, 1, 2, by=11 + 0.5 + LOAD + MOMENT, text=OUT_OF_MEMORY[0])
    yield from launched(run, "c", 2)


R48_E = Case(
    entry="R48-e",
    title="each of those who wait for one load has a retry of its own",
    known=(Known.CODE,),
    source=("S000 load",),
    scenario=Scenario(
        models={"x": 4.0, "c": 8.0},
        launches={"c": (_greedy(20),) * 8},
        requests=(Request(model="x"), Request(model="c", at=10), Request(model="c", at=10.5)),
        faults=(trouble_until(60),),
    ),
    requires=_both_fail,
)


# -- R49 ----------------------------------------------------------------------------------------------------------

FULL: Final = Behaviour(dies_loading=0.5, exit_lines=OUT_OF_MEMORY)
LARGEST: Final = {"num_ctx": 262144}


def _contexts(run: Run, *expected: int) -> Iterator[str]:
    used = tuple(process.spec.num_ctx for process in processes(run, "a"))
    if used != expected:
        yield f"a was started with contexts of {used}, not {expected}"


def _smaller_once(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from _contexts(run, 262144, 32768)


R49 = Case(
    entry="R49",
    title="a context that nobody chose is made smaller when a load runs out of memory, and is the same afterwards",
    known=(Known.TEST,),
    source=("TestSchedFirstLoadOOMReducesAutomaticContextAndRetries",),
    scenario=Scenario(
        launches={"a": (FULL,)},
        requests=(Request(options=LARGEST), Request(at=10, options=LARGEST)),
    ),
    requires=_smaller_once,
    control_passes=UPSTREAMS_OWN,
)


def _not_touched(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=1 + MOMENT, text=OUT_OF_MEMORY[0])
    yield from _contexts(run, 262144)


R49_B = Case(
    entry="R49-b",
    title="a context that somebody chose stays",
    known=R49.known,
    source=R49.source,
    scenario=Scenario(launches={"a": (FULL,)}, requests=(Request(num_ctx=262144),), faults=(trouble_until(20),)),
    requires=_not_touched,
    control_passes=UPSTREAMS_OWN,
)


def _not_twice(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=3, text=OUT_OF_MEMORY[0])
    yield from _contexts(run, 262144, 32768)


R49_C = Case(
    entry="R49-c",
    title="it is made smaller once only",
    known=R49.known,
    source=R49.source,
    scenario=Scenario(
        launches={"a": (FULL, FULL, FULL)}, requests=(Request(options=LARGEST),), faults=(trouble_until(20),)
    ),
    requires=_not_twice,
    control_passes=UPSTREAMS_OWN,
)


# -- R50 ----------------------------------------------------------------------------------------------------------
# y answers until 43. c runs out of memory at 6, which is to stop y; but at 8 the one who wanted c leaves.


def _nobody_waits_for_the_dead(run: Run) -> Iterator[str]:
    yield from answered(run, 2, by=9 + LOAD + MOMENT)
    yield from answered(run, 3, by=10 + MOMENT)
    yield from answered(run, 0)
    yield from launched(run, "y", 1)
    yield from launched(run, "c", 1)


R50 = Case(
    entry="R50",
    title="all others are waited for, on behalf of somebody who left",
    known=(Known.CODE,),
    source=("S000 evictAllAndWait",),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        models={"y": 8.0, "c": 8.0, "d": 2.0},
        launches={"c": (_greedy(10), _greedy(10))},
        requests=(
            Request(model="y", tokens=100, pause=0.4),
            Request(model="c", at=5, leaves=8),
            Request(model="d", at=9),
            Request(model="y", at=10),
        ),
        faults=(trouble_until(60),),
    ),
    requires=_nobody_waits_for_the_dead,
)


# -- R51 ----------------------------------------------------------------------------------------------------------
# At 10 a call of z finds no memory. x is answering then, y is idle.


def _all_go(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    yield from failed(run, 2, by=10 + MOMENT, text=OUT_OF_MEMORY[0])
    yield from stopped(run, "y", after=10, by=10.2)
    finished = end(run.clients[0])
    yield from stopped(run, "x", after=finished, by=finished + MOMENT)


R51 = Case(
    entry="R51",
    title="a running request finds no memory: who is idle goes now, who is busy when it is done",
    known=(Known.CODE, Known.TEST),
    source=("S000 expireRunnersForRuntimeOOM",),
    scenario=Scenario(
        launches={"z": (Behaviour(refuses_calls=OUT_OF_MEMORY[0]),)},
        requests=(
            Request(model="x", tokens=60, pause=0.2, keep_alive=3600),
            Request(model="y", at=0.1, keep_alive=3600),
            Request(model="z", at=8, keep_alive=3600),
        ),
        faults=(Fault(at=10.1, what=What.OUT_OF_MEMORY), trouble_until(30)),
    ),
    requires=_all_go,
    control_passes="the rule is upstream's own; what it forgets is in R51-b",
)


def _stays_doomed(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1)
    finished = end(run.clients[0])
    yield from stopped(run, "x", after=finished, by=finished + MOMENT)
    yield from launched(run, "x", 2)


R51_B = Case(
    entry="R51-b",
    title="after it a new request joins a model that is to go, and keeps it",
    known=(Known.CODE,),
    source=("S000 expireRunnersForRuntimeOOM", "S000 useLoadedRunner"),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        requests=(
            Request(model="x", tokens=40, pause=0.2),
            Request(model="x", at=6, keep_alive=300),
        ),
        faults=(Fault(at=5, what=What.OUT_OF_MEMORY), trouble_until(30)),
    ),
    requires=_stays_doomed,
)


CASES: Final = (R48, R48_B, R48_C, R48_D, R48_E, R49, R49_B, R49_C, R50, R51, R51_B)
NOT_HERE: Final[Mapping[str, str]] = {
    "R52": "what the lines of a child's log mean: tests/runners/test_log.py and tests/runners/test_failures.py",
}
"""Entries of this part that no scenario can show, and the tests that do."""
