"""Requests that are cancelled while they are served: in the prompt, in a stream, in a batch (R06, R08-R11)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.scenarios import Request, Run, Scenario
from simulations.world.behaviour import Behaviour

from .case import Case, Known
from .ingredients import TWO_SLOTS
from .requirements import (
    MOMENT,
    answered,
    cancelled,
    failed,
    launched,
    never_two,
    processes,
    stopped,
    unharmed,
)

__all__ = ["CASES", "NOT_HERE"]

PARTS: Final = (
    "the parts of a batch come one after the other here; its routes run them side by side, past the first error"
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
    R06,
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
