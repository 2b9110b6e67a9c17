"""Requests that are cancelled: while they wait, while they are handed something, while they use it (R01-R11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Request, Run, Scenario
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .requirements import (
    MOMENT,
    answered,
    cancelled,
    end,
    failed,
    generations,
    launched,
    never_two,
    processes,
    stopped,
    unharmed,
)

__all__ = ["CASES", "NOT_HERE"]

SLOW: Final = Behaviour(load_time=10)
TWO_SLOTS: Final = Policy(num_parallel=2)
LARGE: Final = {"a": 18.0, "b": 18.0}
"""Only one of them fits."""


SLOTS: Final = "its slots are a semaphore per process, and who leaves while it waits for one takes none along"
PARTS: Final = (
    "the parts of a batch come one after the other here; its routes run them side by side, past the first error"
)


# -- R01 ----------------------------------------------------------------------------------------------------------


def _place_is_free(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1, 2)
    yield from launched(run, "b", 0)
    yield from answered(run, 0, 3)


R01 = Case(
    entry="R01",
    title="cancelled in the queue: no answer, and the place stays taken",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("S000 processPending", "S003 processPending", "ollama/ollama#17044"),
    scenario=Scenario(
        usual=SLOW,
        policy=Policy(queue_bound=2),  # one for the load, one behind it; the Go scheduler counts only those behind
        requests=(
            Request(model="a"),
            Request(model="b", at=1, leaves=2),
            Request(model="b", at=3, leaves=4),
            Request(model="c", at=5),
        ),
    ),
    requires=_place_is_free,
)


# -- R02 ----------------------------------------------------------------------------------------------------------


def _nothing_for_the_dead(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1)
    yield from launched(run, "b", 0)


def _claim_goes_too(run: Run) -> Iterator[str]:
    yield from _nothing_for_the_dead(run)
    yield from answered(run, 0)
    yield from answered(run, 2, by=5 + MOMENT)
    yield from answered(run, 3, by=60 + MOMENT)
    yield from generations(run, 0, 2, 3)


R02 = Case(
    entry="R02",
    title="cancelled while it waits for a busy victim, which is evicted nevertheless",
    known=(Known.CODE,),
    source=("S000 processPending", "S003 processPending"),
    scenario=Scenario(
        models=LARGE,
        policy=TWO_SLOTS,
        requests=(
            Request(model="a", hold=10),
            Request(model="b", at=3, leaves=4),
            Request(model="a", at=5),
            Request(model="a", at=60),
        ),
    ),
    requires=_claim_goes_too,
)


def _stop_goes_on(run: Run) -> Iterator[str]:
    yield from _nothing_for_the_dead(run)
    yield from stopped(run, "a", after=5, by=5)
    yield from answered(run, 2, by=20)


R02_STOPPING = Case(
    entry="R02-b",
    title="cancelled while the victim ends: a process starts for nobody",
    known=(Known.CODE,),
    source=("S000 processPending", "S003 processPending"),
    scenario=Scenario(
        models={**LARGE, "c": 18},
        usual=Behaviour(term_time=1),
        requests=(Request(model="a"), Request(model="b", at=5, leaves=5.5), Request(model="c", at=8)),
    ),
    requires=_stop_goes_on,
)


# -- R03 ----------------------------------------------------------------------------------------------------------


def _next_is_served(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from stopped(run, "a", after=7, by=7)
    yield from launched(run, "a", 1)
    yield from answered(run, 1, by=7 + 1 + 10 + 1)


R03 = Case(
    entry="R03",
    title="the only one who waits for a load leaves: the process goes, the next comes",
    known=(Known.CODE, Known.REPORT),
    source=("ollama/ollama#8006", "ollama/ollama#4427", "ollama/ollama#4638", "ollama/ollama#9292"),
    scenario=Scenario(
        models=LARGE,
        usual=Behaviour(load_time=10, term_time=1),
        requests=(Request(model="a", leaves=7), Request(model="b", at=1)),
    ),
    requires=_next_is_served,
    control_passes="its load ends with its first requester, who is the only one here",
)


def _one_at_a_time(run: Run) -> Iterator[str]:
    yield from cancelled(run, *range(10))
    yield from never_two(run, "a")
    yield from answered(run, 10, by=20 + 2 + 10 + MOMENT)


R03_STORM = Case(
    entry="R03-b",
    title="clients with less patience than the load takes try again and again",
    known=(Known.CODE, Known.REPORT),
    source=("ollama/ollama#8006", "rsynnot/magic-lists-for-navidrome#34", "mostlygeek/llama-swap#727"),
    scenario=Scenario(
        models=LARGE,
        usual=Behaviour(load_time=10, term_time=1.5),
        requests=(*(Request(at=2 * n, leaves=2 * n + 1.8) for n in range(10)), Request(at=20)),
    ),
    requires=_one_at_a_time,
    control_passes="its loads come one after the other, and each ends with its requester",
)


def _retry_joins(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from launched(run, "a", 1)
    yield from answered(run, 1, by=10 + MOMENT)


R03_JOINS = Case(
    entry="R03-c",
    title="a load that is to be finished is joined by the retry",
    known=(Known.CODE, Known.REPORT),
    source=("mostlygeek/llama-swap#727",),
    scenario=Scenario(
        usual=SLOW,
        policy=Policy(finish_abandoned_load=True),
        requests=(Request(leaves=5), Request(at=6)),
    ),
    requires=_retry_joins,
)


# -- R04 ----------------------------------------------------------------------------------------------------------


def _load_goes_on(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from launched(run, "a", 1)
    yield from answered(run, 1, 2, by=10 + 2 * MOMENT)
    yield from generations(run, 1, 2)


R04 = Case(
    entry="R04",
    title="the first of three who wait for a load leaves, and takes it along",
    known=(Known.CODE, Known.REPORT),
    source=("S000 load", "ollama/ollama#4189", "ollama/ollama#4187"),
    scenario=Scenario(usual=SLOW, requests=(Request(leaves=9), Request(at=1), Request(at=2))),
    requires=_load_goes_on,
)


# -- R05 ----------------------------------------------------------------------------------------------------------


def _either_way(run: Run) -> Iterator[str]:
    yield from cancelled(run, *range(12))
    yield from answered(run, 12, by=4 + 2 + MOMENT)
    for process in run.processes:
        if not process.signals or process.signals[0][0] > 4 + 2 + 5 + MOMENT:
            yield f"process {process.pid} stays, as if somebody used it"


R05 = Case(
    entry="R05",
    title="a load ends and those who wait for it leave, before, in and after the handing over",
    known=(Known.CODE,),
    source=("S003 load",),
    scenario=Scenario(
        policy=Policy(num_parallel=12),
        requests=(*(Request(leaves=2, late=n, keep_alive=5) for n in range(12)), Request(at=4, keep_alive=5)),
    ),
    requires=_either_way,
    schedules=range(50),
    older=True,
)


def _slot_is_handed_on(run: Run) -> Iterator[str]:
    yield from cancelled(run, *range(1, 7))
    yield from answered(run, 0, by=5)
    yield from answered(run, 7, by=5 + 2.5)
    yield from launched(run, "a", 1)


R05_SLOT = Case(
    entry="R05-b",
    title="a slot comes free and those who wait for it leave, before, in and after the handing over",
    known=(Known.CODE,),
    source=("S003 useLoadedRunner",),
    scenario=Scenario(
        usual=Behaviour(prompt_time=0.5, token_time=0.5),  # whole halves: the fifth second is hit exactly
        requests=(
            Request(tokens=4),
            *(Request(at=4, leaves=5, late=2 * n) for n in range(6)),
            Request(at=4.5),
        ),
    ),
    requires=_slot_is_handed_on,
    schedules=range(50),
    older=True,
    control_passes=SLOTS,
)


# -- R06 ----------------------------------------------------------------------------------------------------------


def _no_slot_leaks(run: Run) -> Iterator[str]:
    yield from cancelled(run, *range(1, 51))
    yield from answered(run, 51, by=100 + MOMENT)
    yield from launched(run, "a", 1)


R06 = Case(
    entry="R06",
    title="fifty slow readers leave in the middle of their answers",
    known=(Known.CODE, Known.REPORT),
    source=("ollama/ollama#17131", "ollama/ollama#17135"),
    scenario=Scenario(
        requests=(
            Request(),
            *(Request(at=3 + n, leaves=3.5 + n, tokens=100, pause=0.3) for n in range(50)),
            Request(at=100),
        )
    ),
    requires=_no_slot_leaks,
)


# -- R07 ----------------------------------------------------------------------------------------------------------


def _order_stays(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1)
    yield from answered(run, 0, 2, 3, by=6 + 3 * MOMENT)
    if not end(run.clients[0]) < end(run.clients[2]) < end(run.clients[3]):
        yield "those who stayed were not served in the order in which they came"
    if run.clients[1].got or any(process.most_at_once > 1 for process in run.processes):
        yield "the model heard of a request that had no slot"


R07 = Case(
    entry="R07",
    title="cancelled while it waits for a slot",
    known=(Known.CODE, Known.REPORT),
    source=("ollama/ollama#4989", "S000 getRunner"),
    scenario=Scenario(
        requests=(
            Request(tokens=400),
            Request(at=3, leaves=4),
            Request(at=3.2),
            Request(at=3.4),
        )
    ),
    requires=_order_stays,
    schedules=range(20),
    control_passes=SLOTS,
)


# -- R08 ----------------------------------------------------------------------------------------------------------


def _recycled(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from stopped(run, "a", after=3 + 10, by=3 + 10)
    yield from failed(run, 1, by=3 + 10 + MOMENT)  # it was in line on that process
    yield from never_two(run, "a")
    yield from answered(run, 2, by=3 + 10 + 2 + 3 + 5 + 2 + 60 + MOMENT)


R08 = Case(
    entry="R08",
    title="cancelled in the prompt: the model works on for nobody, deaf to SIGTERM",
    known=(Known.REPORT,),
    source=("ollama/ollama#11889", "ollama/ollama#17428", "ggml-org/llama.cpp#9679", "ggml-org/llama.cpp#24496"),
    scenario=Scenario(
        usual=Behaviour(prompt_time=60),
        launches={"a": (Behaviour(prompt_time=60, settle_time=None, term_time=None, kill_time=3),)},
        requests=(Request(leaves=3), Request(at=4), Request(at=14)),
    ),
    requires=_recycled,
)


def _waits_for_the_slot(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from launched(run, "a", 1)
    yield from answered(run, 1)
    if processes(run, "a")[0].most_at_once > 1:
        yield "the model got a second call while it worked on the first one, with one slot"


R08_LATE = Case(
    entry="R08-b",
    title="cancelled in the prompt: the slot comes free five seconds later",
    known=(Known.REPORT,),
    source=("ollama/ollama#11889", "ggml-org/llama.cpp#11720"),
    scenario=Scenario(
        usual=Behaviour(prompt_time=60),
        launches={"a": (Behaviour(prompt_time=60, settle_time=5),)},
        requests=(Request(leaves=3), Request(at=4)),
    ),
    requires=_waits_for_the_slot,
)


def _error_not_hang(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from failed(run, 1, 2, by=3 + 10 + MOMENT)
    yield from answered(run, 3, by=14 + 2 + MOMENT)


R08_OTHERS = Case(
    entry="R08-c",
    title="after an abort the model answers nobody: the others on it get an error",
    known=(Known.REPORT,),
    source=("ollama/ollama#17428", "ggml-org/llama.cpp#24630", "ikawrakow/ik_llama.cpp#1020"),
    scenario=Scenario(
        policy=TWO_SLOTS,
        launches={"a": (Behaviour(hangs=True, settle_time=None, term_time=None),)},
        requests=(Request(leaves=3), Request(at=2.5), Request(at=5), Request(at=14), Request(model="b", at=100)),
    ),
    requires=_error_not_hang,
)


# -- R09 ----------------------------------------------------------------------------------------------------------


def _others_untouched(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1)
    yield from answered(run, 0, 2, by=3 + 2 + MOMENT)
    yield from unharmed(run, "a", until=300)
    if run.clients[2].got != 200:
        yield f"client 3 got {run.clients[2].got} of 200 tokens"


R09 = Case(
    entry="R09",
    title="of two who use a model one leaves",
    known=(Known.REPORT,),
    source=("vllm-project/vllm#14326",),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=(Request(), Request(at=3, tokens=200, leaves=4), Request(at=3, tokens=200)),
    ),
    requires=_others_untouched,
    control_passes="each of its calls has a connection of its own, and ends with it",
)


def _all_parts_end(run: Run) -> Iterator[str]:
    yield from cancelled(run, 1)
    yield from answered(run, 0, 2, by=3 + 2 + 2 * MOMENT)
    yield from answered(run, 3, by=4 + 2 * MOMENT)
    yield from unharmed(run, "a", until=300)
    if any(process.unsettled for process in run.processes):
        yield "the model works on for a request that has left"


R09_PARTS = Case(
    entry="R09-b",
    title="of two who use a model one leaves, with all of its many calls",
    known=(Known.REPORT,),
    source=("vllm-project/vllm#14326",),
    scenario=Scenario(
        policy=TWO_SLOTS,
        requests=(
            Request(),
            Request(at=3, tokens=0, inputs=100, slot=False, leaves=4),
            Request(at=3, tokens=200),
            Request(at=4),
        ),
    ),
    requires=_all_parts_end,
    control_passes="each of its calls has a connection of its own, and ends with it",
)


# -- R10 ----------------------------------------------------------------------------------------------------------


def _between_the_parts(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    yield from answered(run, 1, by=5 + 2 * MOMENT)
    yield from answered(run, 2, by=8 + 2 * MOMENT)
    if run.clients[0].got != 300:
        yield f"the batch got {run.clients[0].got} of 300 vectors"


R10 = Case(
    entry="R10",
    title="three hundred texts to embed, and one slot",
    known=(Known.CODE, Known.REPORT),
    source=("RooCodeInc/Roo-Code#5733",),
    scenario=Scenario(
        requests=(Request(tokens=0, inputs=300, slot=False), Request(at=5), Request(at=8)),
    ),
    requires=_between_the_parts,
    control_passes=PARTS,
)


def _batch_ends_at_once(run: Run) -> Iterator[str]:
    yield from cancelled(run, 0)
    yield from answered(run, 1, by=6 + MOMENT)
    yield from stopped(run, "a", after=306, by=306 + 2 * MOMENT)
    if processes(run, "a")[0].most_at_once > 1:
        yield "a part of the batch went on beside the next request"


R10_LEAVES = Case(
    entry="R10-b",
    title="who has three hundred texts embedded leaves",
    known=(Known.CODE, Known.REPORT),
    source=("RooCodeInc/Roo-Code#5733",),
    scenario=Scenario(
        requests=(Request(tokens=0, inputs=300, slot=False, leaves=6), Request(at=6)),
    ),
    requires=_batch_ends_at_once,
    schedules=range(20),
    control_passes=PARTS,
)


def _one_error(run: Run) -> Iterator[str]:
    yield from failed(run, 0, by=2 + MOMENT, text="too long")
    yield from failed(run, 1, by=5 + MOMENT, text="too long")
    yield from launched(run, "a", 1)
    yield from unharmed(run, "a", until=300)


R10_FAILS = Case(
    entry="R10-c",
    title="the first of three hundred texts cannot be embedded",
    known=(Known.CODE, Known.REPORT),
    source=("RooCodeInc/Roo-Code#5733",),
    scenario=Scenario(
        launches={"a": (Behaviour(refuses_calls="the input is too long"),)},
        requests=(Request(tokens=0, inputs=300, slot=False), Request(at=5)),
    ),
    requires=_one_error,
    control_passes=PARTS,
)


# -- R11 ----------------------------------------------------------------------------------------------------------


def _no_needless_abort(run: Run) -> Iterator[str]:
    yield from answered(run, *range(20))
    yield from launched(run, "a", 1)
    yield from unharmed(run, "a", until=20 + 300)


R11 = Case(
    entry="R11",
    title="an answer that has ended is not aborted",
    known=(Known.REPORT,),
    source=("ROCm/ATOM#1589", "sgl-project/sglang#34894"),
    scenario=Scenario(
        launches={"a": (Behaviour(settle_time=None),)},
        requests=tuple(Request(at=n + 1) for n in range(20)),
    ),
    requires=_no_needless_abort,
    control_passes="it aborts nothing: it closes the connection",
)


def _ends_once(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 2, by=5 + 2.5)
    yield from launched(run, "a", 1)
    yield from stopped(run, "a", after=307.5, by=307.5)


R11_TOGETHER = Case(
    entry="R11-b",
    title="the end of an answer and the end of the client's patience come together",
    known=(Known.REPORT,),
    source=("sgl-project/sglang#35255", "vllm-project/vllm#32442"),
    scenario=Scenario(
        usual=Behaviour(prompt_time=0.5, token_time=0.5),  # whole halves: the fifth second is hit exactly
        requests=(Request(tokens=0), Request(at=3, tokens=2, leaves=5), Request(at=4)),
    ),
    requires=_ends_once,
    schedules=range(30),
)


CASES: Final = (
    R01,
    R02,
    R02_STOPPING,
    R03,
    R03_STORM,
    R03_JOINS,
    R04,
    R05,
    R05_SLOT,
    R06,
    R07,
    R08,
    R08_LATE,
    R08_OTHERS,
    R09,
    R09_PARTS,
    R10,
    R10_LEAVES,
    R10_FAILS,
    R11,
    R11_TOGETHER,
)

NOT_HERE: Final = {
    "R06": "a connection whose reader has left: tests/server/test_disconnects.py, tests/server/test_slow_readers.py",
    "R10": "parts that run side by side: tests/server/routes/test_embed.py",
}
"""What of an entry needs more than this world has, and where it is tested."""
