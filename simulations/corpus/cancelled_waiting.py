"""Requests that are cancelled while they wait, or are handed what they waited for (R01-R05, R07)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from simulations.scenarios import Request, Run, Scenario
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import TWO_SLOTS
from .requirements import MOMENT, answered, cancelled, end, generations, launched, never_two, stopped

__all__ = ["CASES", "NOT_HERE"]

SLOW: Final = Behaviour(load_time=10)
LARGE: Final = {"a": 18.0, "b": 18.0}
"""Only one of them fits."""
SLOTS: Final = "its slots are a semaphore per process, and who leaves while it waits for one takes none along"


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
    R07,
)
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType({})
"""Entries of this part that no scenario can show, and the tests that do."""
