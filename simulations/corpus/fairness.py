"""Who waits for whom, and how many may wait (R53-R57)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from simulations.scenarios import Request, Run, Scenario
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.scheduler import Policy

from .case import Case, Known
from .ingredients import EXIT, LOAD, trouble_until
from .requirements import MOMENT, answered, end, launched

__all__ = ["CASES", "NOT_HERE"]


# -- R53 ----------------------------------------------------------------------------------------------------------


def _other_gpu_at_once(run: Run) -> Iterator[str]:
    yield from answered(run, 1, by=5 + LOAD + MOMENT)
    yield from answered(run, 0)


R53 = Case(
    entry="R53",
    title="a long load holds up all others, also those for another GPU",
    known=(Known.CODE, Known.REPORT),
    source=("S000 processPending", "ollama/ollama#14578", "ollama/ollama#15126"),
    scenario=Scenario(
        gpus=(24, 24),
        models={"b": 18.0, "c": 18.0},
        launches={"b": (Behaviour(load_time=60),)},
        requests=(Request(model="b"), Request(model="c", at=5)),
        faults=(trouble_until(70),),
    ),
    requires=_other_gpu_at_once,
)


def _loaded_at_once(run: Run) -> Iterator[str]:
    yield from answered(run, 3, by=8 + MOMENT)
    yield from answered(run, 0, 1, 2)


R53_B = Case(
    entry="R53-b",
    title="while one waits for room, those wait, too, whose model is loaded and stays",
    known=(Known.CODE, Known.REPORT),
    source=("S003 processPending", "ollama/ollama#14578", "ollama/ollama#15126"),
    scenario=Scenario(
        gpus=(24, 26),
        policy=Policy(num_parallel=2),
        models={"x": 18.0, "y": 18.0, "b": 18.0},
        requests=(
            Request(model="y", tokens=50, pause=0.3, keep_alive=10),
            Request(model="x", at=0.1, tokens=100, pause=0.3),
            Request(model="b", at=6),
            Request(model="x", at=8),
        ),
    ),
    requires=_loaded_at_once,
    older=True,
)


# -- R54 ----------------------------------------------------------------------------------------------------------
# x has one slot, which is taken until 13. Two may wait; at 5 four come.

BUSY: Final = "server busy, please try again.  maximum pending requests exceeded"


def _two_wait(run: Run) -> Iterator[str]:
    yield from answered(run, 0)
    refused = [client for client in run.clients[1:] if client.outcome is Outcome.FAILED]
    if len(refused) != 2:
        yield f"{len(refused)} of 4 were refused, 2 places are there"
    for client in refused:
        if end(client) > 5 or str(client.error) != BUSY:
            yield f"{client.name} was refused at {end(client):g} with {client.error}"


R54 = Case(
    entry="R54",
    title="requests that wait for a slot are not counted, so the queue has no bound",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("S000 getRunner", "ollama/ollama#7758", "ollama/ollama#4124", "ollama/ollama#4144"),
    scenario=Scenario(
        policy=Policy(queue_bound=2),
        requests=(
            Request(model="x", tokens=50, pause=0.2),
            *(Request(model="x", at=5),) * 4,
        ),
    ),
    requires=_two_wait,
)


def _free_slot(run: Run) -> Iterator[str]:
    yield from answered(run, 5, by=8 + MOMENT)
    yield from answered(run, 0, 1, 2, 3)  # whether the third of b may wait is another matter


R54_B = Case(
    entry="R54-b",
    title="the queue is full, and a request is refused whose model is loaded and has a free slot",
    known=(Known.CODE,),
    source=("S003 GetRunner",),
    scenario=Scenario(
        gpus=(24, 26),
        policy=Policy(num_parallel=2, queue_bound=2),
        models={"x": 18.0, "y": 18.0, "b": 18.0},
        requests=(
            Request(model="y", tokens=50, pause=0.3, keep_alive=10),
            Request(model="x", at=0.1, tokens=100, pause=0.3),
            Request(model="b", at=6),
            Request(model="b", at=7),
            Request(model="b", at=7.5),
            Request(model="x", at=8),
        ),
    ),
    requires=_free_slot,
    older=True,
)


# -- R55 ----------------------------------------------------------------------------------------------------------
# Somebody is always on s and somebody on t until 33. b needs the whole GPU, from 8.5 on.


def _large_one_is_next(run: Run) -> Iterator[str]:
    large, small = run.clients[0], run.clients[1:]
    found = [end(client) for client in small if client.script.arrives < large.script.arrives]
    yield from answered(run, 0, by=max(found) + EXIT + LOAD + 2 * MOMENT)
    yield from answered(run, *range(1, len(run.clients)))


R55 = Case(
    entry="R55",
    title="a model that needs the whole GPU starves under small ones",
    known=(Known.CODE,),
    source=("S000 getRunner", "S000 processPending"),
    scenario=Scenario(
        policy=Policy(num_parallel=2),
        models={"s": 4.0, "t": 4.0, "b": 19.0},
        requests=(
            Request(model="b", at=8.5),
            *(Request(model="st"[at % 2], at=at, tokens=15, pause=0.2) for at in range(30)),
        ),
    ),
    requires=_large_one_is_next,
)


def _beside_its_place(run: Run) -> Iterator[str]:
    yield from answered(run, 2, by=6 + LOAD + MOMENT)
    yield from answered(run, 0, 1, 3)
    large, later = run.clients[1].granted_at, run.clients[3].granted_at
    if large is None or later is None or later < large:
        yield f"b came first, and got its model at {large}, e at {later}"


R55_B = Case(
    entry="R55-b",
    title="a small one that fits beside the place of a large one waits with it",
    known=(Known.CODE,),
    source=("S000 processPending",),
    scenario=Scenario(
        models={"x": 10.0, "b": 12.0, "c": 2.0, "e": 8.0},
        requests=(
            Request(model="x", tokens=60, pause=0.3),
            Request(model="b", at=5),
            Request(model="c", at=6),
            Request(model="e", at=7),
        ),
    ),
    requires=_beside_its_place,
)


# -- R56 ----------------------------------------------------------------------------------------------------------


def _never_two_in_one_slot(run: Run) -> Iterator[str]:
    yield from answered(run, 1)
    for process in run.processes:
        if process.most_at_once > process.spec.parallel:
            yield f"process {process.pid} got {process.most_at_once} calls for {process.spec.parallel} slots"


R56 = Case(
    entry="R56",
    title="a slot that the child is still cleaning up is given to the next request",
    known=(Known.REPORT,),
    source=("ollama/ollama#7805", "ollama/ollama#7779", "ollama/ollama#4159", "ollama/ollama#4545"),
    scenario=Scenario(
        usual=Behaviour(settle_time=1),
        requests=(
            Request(model="x", tokens=50, pause=0.2, leaves=5),
            Request(model="x", at=4),
        ),
        faults=(trouble_until(20),),
    ),
    requires=_never_two_in_one_slot,
)


# -- R57 ----------------------------------------------------------------------------------------------------------


def _one_runner(run: Run) -> Iterator[str]:
    yield from answered(run, 0, 1, 2)
    yield from launched(run, "x", 1)


R57 = Case(
    entry="R57",
    title="a context times the number of slots is compared with a context: each request reloads",
    known=(Known.CODE, Known.TEST, Known.REPORT),
    source=("S003 GetRunner", "ollama/ollama#6148", "ollama/ollama#6271"),
    scenario=Scenario(
        policy=Policy(num_parallel=4),
        requests=tuple(Request(model="x", at=at, num_ctx=8192) for at in (0, 5, 5.01)),
    ),
    requires=_one_runner,
    older=True,
    control_passes="that version multiplies on both sides; those between it and today's chose the slots per runner",
)


CASES: Final = (R53, R53_B, R54, R54_B, R55, R55_B, R56, R57)
NOT_HERE: Final[Mapping[str, str]] = {}
"""Entries of this part that no scenario can show, and the tests that do."""
