"""Scenarios that random ones hardly meet, each with what has to come of it: written where a mutant had survived."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import trio

from simulations.corpus.requirements import answered, failed
from simulations.scenarios import Fault, Request, Run, Scenario, What, play
from simulations.world.behaviour import Behaviour
from simulations.world.world import World
from trio_ollama.scheduler import Limits, Policy
from trio_ollama.scheduler.core.events import LoadStarted, RunnerGone

__all__ = ["AIMED", "Aimed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aimed:
    name: str
    scenario: Scenario
    requires: Callable[[Run], Iterator[str]] = lambda run: iter(())
    interfere: Callable[[World], None] = lambda world: None

    def problems(self, schedule: int = 0) -> list[str]:
        """What is wrong with a run of it."""
        run = play(self.scenario, schedule=schedule, interfere=self.interfere)
        return [*run.broken, *self.requires(run)]


def _kinds(run: Run, model: str) -> list[str]:
    """How its loads were placed."""
    return [event.kind for event in run.events if isinstance(event, LoadStarted) and event.model == model]


def _not_single(model: str) -> Callable[[Run], Iterator[str]]:
    def requires(run: Run) -> Iterator[str]:
        if "single" in _kinds(run, model):
            yield f"I19: {model} is loaded onto a GPU that others have filled"

    return requires


def _no_others_go(run: Run) -> Iterator[str]:
    first, second = run.processes[:2]
    if first.ended_at is not None and first.ended_at <= second.started_at:
        yield "R46: a had to go for layers that b would only have liked to have on the GPU"


def _back_when_it_shows(run: Run) -> Iterator[str]:
    gone = next(event.at / 1e9 for event in run.events if isinstance(event, RunnerGone))
    if gone < 13:
        yield f"R32: at {gone:g} the memory of a counts as back, the driver shows it at 13"


def _back_on_both(run: Run) -> Iterator[str]:
    gone = next(event.at / 1e9 for event in run.events if isinstance(event, RunnerGone))
    if gone < 13:
        yield f"R31: at {gone:g} the memory of wide counts as back, GPU-0 shows it at 13"


def _first_ends(by: float, why: str) -> Callable[[Run], Iterator[str]]:
    """The first process, at the latest then."""

    def requires(run: Run) -> Iterator[str]:
        ended = run.processes[0].ended_at
        if ended is None or ended > by:
            yield f"{why}, but it ended at {ended}"

    return requires


def _third_gets_the_load(run: Run) -> Iterator[str]:
    if run.processes[0].ended_at is not None and run.processes[0].ended_at < 2:
        yield "R04: a load is given up although somebody waits for it"


def _by(number: int, seconds: float) -> Callable[[Run], Iterator[str]]:
    return lambda run: answered(run, number, by=seconds)


def _stop_all_at(seconds: float) -> Callable[[World], None]:
    """The server closes and stops all runners then, as it does when it is told to end."""

    async def stop_all(world: World) -> None:
        await trio.sleep(seconds)
        world.scheduler.close()
        await world.scheduler.stop_all()
        assert world.rules is not None
        world.rules.broken += [f"I25: process {process.pid} outlives the server" for process in world.factory.alive]

    def interfere(world: World) -> None:
        assert world._nursery is not None
        world._nursery.start_soon(stop_all, world)

    return interfere


SLOW_LOOK_REQUESTS: Final = (Request(num_gpu=0), Request(model="b", at=5), Request(at=50))
SLOW_LOOK_FAULTS: Final = (
    Fault(at=4, what=What.QUERY_TIME, amount=1),
    Fault(at=5.5, what=What.CRASH, target="a"),
)
FILLED: Final = Fault(at=0, what=What.FOREIGN, target="GPU-0", amount=16)

AIMED: Final = (
    Aimed(
        name="the server stops everything while a runner drains",
        scenario=Scenario(
            requests=(Request(hold=50), Request(at=60)), faults=(Fault(at=3, what=What.STOP, target="a"),)
        ),
        interfere=_stop_all_at(5),
    ),
    Aimed(
        name="a look at the GPUs takes for ever",
        scenario=Scenario(
            requests=(Request(at=2), Request(model="b", at=50)),
            faults=(Fault(at=1, what=What.QUERY_TIME, amount=1000),),
        ),
        requires=_by(0, 8),
    ),
    Aimed(
        name="a process ends while somebody waits for a slow look at the GPUs",
        scenario=Scenario(requests=SLOW_LOOK_REQUESTS, faults=SLOW_LOOK_FAULTS),
        requires=_by(1, 10),
    ),
    Aimed(
        name="a process ends while somebody waits for a slow look at the GPUs, and nobody may queue",
        scenario=Scenario(policy=Policy(queue_bound=0), requests=SLOW_LOOK_REQUESTS, faults=SLOW_LOOK_FAULTS),
        requires=_by(1, 10),
    ),
    Aimed(
        name="the first leaves a load that the third still waits for, behind one who wants other options",
        scenario=Scenario(
            requests=(Request(num_ctx=2048, leaves=1), Request(num_ctx=8192, at=0.1), Request(num_ctx=2048, at=0.2))
        ),
        requires=_third_gets_the_load,
    ),
    Aimed(
        name="another program fills the GPU",
        scenario=Scenario(models={"b": 10}, requests=(Request(model="b", at=2), Request(at=20)), faults=(FILLED,)),
        requires=_not_single("b"),
    ),
    Aimed(
        name="another program fills the GPU, which says no more what is free",
        scenario=Scenario(
            models={"a": 2, "b": 10},
            requests=(Request(at=2), Request(model="b", at=10), Request(at=20)),
            faults=(FILLED, Fault(at=7, what=What.NO_FIGURES)),
        ),
        requires=_not_single("b"),
    ),
    Aimed(
        name="another program fills the GPU, and a look that began before answers after the next one",
        scenario=Scenario(
            models={"a": 2, "b": 2, "c": 10},
            usual=Behaviour(load_time=2),
            requests=(Request(), Request(model="b", at=3.8, num_gpu=0), Request(model="c", at=4.1), Request(at=20)),
            faults=(
                Fault(at=0, what=What.READS_FIRST),
                Fault(at=1, what=What.QUERY_TIME, amount=2),
                Fault(at=3, what=What.FOREIGN, target="GPU-0", amount=16),
                Fault(at=3.5, what=What.QUERY_TIME, amount=0),
            ),
        ),
        requires=_not_single("c"),
    ),
    Aimed(
        name="some layers are wanted on a GPU that an idle runner has filled",
        scenario=Scenario(
            models={"a": 18, "b": 18},
            requests=(Request(), Request(model="b", at=10, num_gpu=30), Request(model="b", at=20, num_gpu=30)),
        ),
        requires=_no_others_go,
    ),
    Aimed(
        name="a GPU vanishes, and more runners are there than may be",
        scenario=Scenario(
            gpus=(24, 24),
            models=dict.fromkeys("abcdef", 2.0),
            requests=(*(Request(model=name) for name in "abcde"), Request(model="f", at=30), Request(at=50)),
            faults=(Fault(at=20, what=What.VANISH, target="GPU-1"),),
        ),
    ),
    Aimed(
        name="the one runner that may be there still serves somebody",
        scenario=Scenario(
            policy=Policy(max_models=1),
            requests=(Request(hold=20), Request(model="b", at=4)),
            faults=(Fault(at=3, what=What.STOP, target="a"),),
        ),
    ),
    Aimed(
        name="a process that cannot be killed keeps its memory",
        scenario=Scenario(
            models={"a": 16, "b": 16},
            launches={"a": (Behaviour(term_time=None, kill_time=None),)},
            requests=(Request(), Request(model="b", at=20), Request(model="c", at=100)),
            faults=(Fault(at=5, what=What.STOP, target="a"),),
        ),
        requires=_by(1, 40),
    ),
    Aimed(
        name="another program takes memory while that of a runner comes back",
        scenario=Scenario(
            models={"a": 8},
            requests=(Request(), Request(model="b", at=50)),
            faults=(
                Fault(at=5, what=What.LAG, amount=3),
                Fault(at=8, what=What.FOREIGN, target="GPU-0", amount=7),
                Fault(at=10, what=What.STOP, target="a"),
            ),
        ),
        requires=_back_when_it_shows,
    ),
    Aimed(
        name="one of two GPUs shows late that a runner of both is gone",
        scenario=Scenario(
            gpus=(24, 24),
            models={"wide": 40},
            requests=(Request(model="wide"), Request(model="wide", at=50)),
            faults=(
                Fault(at=5, what=What.LAG, target="GPU-0", amount=3),
                Fault(at=10, what=What.STOP, target="wide"),
            ),
        ),
        requires=_back_on_both,
    ),
    Aimed(
        name="a runner crashes again and again, and nobody waits for an answer",
        scenario=Scenario(
            usual=Behaviour(prompt_time=1),
            requests=(*(Request(at=at, leaves=at + 2.5) for at in (0, 10, 20)), Request(at=26)),
            faults=tuple(Fault(at=at, what=What.CRASH, target="a") for at in (4, 14, 24)),
        ),
        requires=lambda run: failed(run, 3, text="several times in a row"),
    ),
    Aimed(
        name="a slow reader comes back to a runner that was taken away and cannot be killed",
        scenario=Scenario(
            limits=Limits(drain_progress=10),
            launches={"a": (Behaviour(term_time=None, kill_time=None),)},
            requests=(Request(pause=100), Request(model="b", at=300)),
            faults=(Fault(at=3, what=What.HANG, target="a"), Fault(at=3, what=What.STOP, target="a")),
        ),
        requires=lambda run: failed(run, 0, by=110),
    ),
    Aimed(
        name="a runner that drains hangs",
        scenario=Scenario(
            limits=Limits(drain_progress=10),
            requests=(Request(tokens=1000), Request(at=100)),
            faults=(Fault(at=3, what=What.HANG, target="a"), Fault(at=4, what=What.STOP, target="a")),
        ),
        requires=lambda run: failed(run, 0, by=14.5),
    ),
    Aimed(
        name="a runner keeps a slot while it is asked to end",
        scenario=Scenario(
            usual=Behaviour(term_time=None, settle_time=None),
            limits=Limits(abort_confirm=1),
            requests=(Request(tokens=1000, leaves=3), Request(at=50)),
            faults=(Fault(at=3, what=What.STOP, target="a"),),
        ),
        requires=_first_ends(4.1, "R08: the process that let go of nothing had a second until 4"),
    ),
    Aimed(
        name="the server ends while a process is put down after a fault",
        scenario=Scenario(
            launches={"a": (Behaviour(serve_raises=ValueError("simulated"), term_time=None, kill_time=3),)},
            requests=(Request(), Request(at=20)),
            faults=(Fault(at=3, what=What.END),),
        ),
        requires=_first_ends(5.1, "R67: the process was killed at 2 and takes 3 seconds to die"),
    ),
)
