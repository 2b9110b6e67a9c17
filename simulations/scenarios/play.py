"""Play a scenario: trouble first, then everything heals, everybody must get somewhere, and nothing may be left.

The same scenario and schedule give the same run, whatever was played before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import trio
import trio.abc

from simulations.world import determinism
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Client, Script
from simulations.world.guard import WedgedError
from simulations.world.hardware import GIB, SimulatedHardware
from simulations.world.loop import sleep, sleep_until
from simulations.world.system import OURS, System
from simulations.world.world import EFFECTIVELY_FOR_EVER, World, running
from trio_ollama.scheduler.core.values import FOREVER, Demand, LoadOptions

from .overheard import leaves, overheard
from .run import Run
from .scenario import Request, Scenario
from .strike import strike
from .watch import Watch, count_rows

__all__ = ["patience", "play"]

_WELL: Final = {
    name: getattr(Behaviour(), name) for name in Behaviour.__dataclass_fields__ if not name.endswith("_time")
} | {"term_time": 0.05, "kill_time": 0.01, "settle_time": 0.0}
"""How processes behave once everything is well, apart from the time that things take."""


def play(
    scenario: Scenario,
    *,
    schedule: int = 0,
    system: System = OURS,
    order: determinism.Order | None = None,
    interfere: Callable[[World], None] = lambda world: None,
    instruments: Sequence[trio.abc.Instrument] = (),
    watched: bool = True,
) -> Run:
    """The run of a scenario with an interleaving.

    `order`: how an interleaving comes from `schedule`; by default each batch of runnable tasks is shuffled.
    `interfere`: called once the scheduler runs, before the first client; `instruments` are trio's.
    `watched`: the system's rules are checked after every step that changed something, not only at the end.
    """
    run = Run(scenario, schedule, system.name)
    watch = Watch(run)
    with overheard(run.broken):
        try:
            determinism.run(
                _main,
                run,
                system,
                watch,
                interfere,
                seed=schedule,
                order=order,
                instruments=instruments,
                at_rest=watch.at_rest,
                after_step=watch.after_step if watched else None,
            )
        except WedgedError as error:
            run.broken.append(f"I11: {error}")
    return run


async def _main(run: Run, system: System, watch: Watch, interfere: Callable[[World], None]) -> None:
    scenario = run.scenario
    gpus = {f"GPU-{number}": round(size * GIB) for number, size in enumerate(scenario.gpus)}
    world = World(
        SimulatedHardware(gpus, ram=round(scenario.ram * GIB), integrated=scenario.integrated),
        policy=scenario.policy,
        limits=scenario.limits,
        usual=scenario.usual,
        sizes={name: round(size * GIB) for name, size in scenario.models.items()},
        gpu_overhead=round(scenario.overhead * GIB),
        system=system,
    )
    run.trace, run.events, run.clients = world.trace, world.events, world.clients
    run.processes, run.injected = world.factory.spawned, world.factory.injected
    for model, behaviours in scenario.launches.items():
        world.factory.next(model, *behaviours)
    try:
        async with running(world):
            if system is OURS:
                count_rows(world, run)
            watch.begin(world)
            interfere(world)
            await _play(world, scenario, run)
            watch.end()
            system.exit(world.scheduler)
    except* Exception as problems:
        run.broken += [
            str(problem) if isinstance(problem, AssertionError) else f"fault: {problem!r}"
            for problem in leaves(problems)
        ]
    run.seconds, run.closed_at = trio.current_time(), world.closed_at


async def _play(world: World, scenario: Scenario, run: Run) -> None:
    for number, request in enumerate(scenario.requests, 1):
        world.admit(_client(world, f"client {number}", request))
    async with trio.open_nursery() as nursery:
        for fault in sorted(scenario.faults, key=lambda fault: fault.at):
            nursery.start_soon(strike, world, fault, run.schedule, name=f"fault {fault.what}")
        await sleep_until(scenario.last)
    _heal(world, scenario)
    with trio.move_on_after(patience(scenario)):
        await trio.lowlevel.checkpoint()
        if world.clients:
            await world.nobody.wait()
    for client in world.clients:
        if not client.ended.is_set():
            run.broken.append(f"I21: {client.name} ({client.script.demand.model.name}) waits for ever")
        elif client.outcome is None:
            run.broken.append(f"I09: {client.name} has no outcome")
    await sleep(EFFECTIVELY_FOR_EVER)
    ended, stays = world.scheduler_scope.cancel_called, _stays(scenario)
    # Whoever could not be killed when the server ended is in its records for good: nobody is there to see it end.
    forsaken = ended and any(process.watched_in_vain for process in run.processes)
    if not stays and not forsaken:
        run.broken += [f"I24: {left} left" for left in _left(world)]
    await _shut_down(world, scenario, run)
    if stays and world.system is OURS and not ended:
        await sleep(EFFECTIVELY_FOR_EVER)
        run.broken += [f"I24: {left} left after the end" for left in _left(world)]


def _client(world: World, name: str, request: Request) -> Client:
    options: dict[str, Any] = {}
    if request.num_ctx is not None:
        options |= {"num_ctx": request.num_ctx, "num_ctx_auto": False}
    if request.num_gpu is not None:
        options["num_gpu"] = request.num_gpu
    keep = request.keep_alive
    if keep is not None:
        keep = FOREVER if keep < 0 else round(keep * 1e9)
    script = Script(
        demand=Demand(world.model(request.model), LoadOptions(**{**options, **request.options}), keep, request.slot),
        arrives=request.at,
        leaves=math.inf if request.leaves is None else request.leaves,
        late=request.late,
        tokens=request.tokens,
        inputs=request.inputs,
        pause=request.pause,
        hold=request.hold,
    )
    return Client(name, script)


def _heal(world: World, scenario: Scenario) -> None:
    """From now on everything is well: what converges, has to do so within bounds."""
    world.note("everything heals")
    world.hardware.heal()
    world.factory.heal(replace(scenario.usual, **_WELL))


def patience(scenario: Scenario) -> float:
    """Seconds in which all requests end once all is well: each waits for all others, one after the other (I21)."""
    limits = scenario.limits
    behaviours = [scenario.usual, *(how for several in scenario.launches.values() for how in several)]
    load = max(how.load_time for how in behaviours) + limits.load_stall
    going = limits.stop_grace + limits.kill_wait + limits.recovery + limits.drain_progress + limits.abort_confirm
    slowest = max(how.prompt_time + how.token_time for how in behaviours)
    generation = max(
        (request.tokens * request.pause + request.hold + (request.tokens + request.inputs + 2) * slowest)
        for request in (*scenario.requests, Request())
    )
    return (len(scenario.requests) + scenario.policy.overtakes + 1) * (load + going + generation)


def _stays(scenario: Scenario) -> bool:
    """Some runners are to stay for ever, or to the end of the server."""
    for_ever = any(request.keep_alive is not None and request.keep_alive < 0 for request in scenario.requests)
    return for_ever or scenario.policy.keep_alive == FOREVER


def _left(world: World) -> Iterator[str]:
    yield from world.system.leftovers(world.scheduler, world.factory, world.hardware.in_use)


async def _shut_down(world: World, scenario: Scenario, run: Run) -> None:
    began = trio.current_time()
    world.scheduler.close()
    await world.scheduler.stop_all()
    took, bound = trio.current_time() - began, scenario.limits.stop_grace + scenario.limits.kill_wait
    last = max((process.ended_at - began for process in run.processes if process.ended_at is not None), default=0.0)
    watched = not world.scheduler_scope.cancel_called  # else nobody is there to see processes end
    if watched and took > max(0.0, last) and not world.factory.alive:
        run.broken.append(f"I25: the end took {took:g} s, the last process had ended after {max(0.0, last):g}")
    if took > bound:
        run.broken.append(f"I25: the end took {took:g} s, {bound:g} are allowed")
    run.broken += [f"I25: process {process.pid} outlives the server" for process in world.factory.alive]
