"""The faults of a scenario come about."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio
import trio.abc

from simulations.world.hardware import GIB
from simulations.world.loop import sleep_until
from simulations.world.world import World

from .scenario import Fault, What

__all__ = ["strike"]


async def strike(world: World, fault: Fault, schedule: int) -> None:
    """At its instant, or some steps later: `schedule` is the number of the interleaving."""
    await sleep_until(fault.at)
    if fault.stepwise and schedule:
        trio.lowlevel.add_instrument(_Step(schedule, partial(_harm, world, fault)))
    else:
        _harm(world, fault)


def _harm(world: World, fault: Fault) -> None:
    world.note(f"fault: {fault.what} {fault.target} {fault.amount:g}")
    world.factory.injected[fault.what] += 1
    hardware = world.hardware
    match fault.what:
        case What.STOP:
            world.scheduler.stop(fault.target)
        case What.FORCE:
            world.scheduler.force_stop(fault.target)
        case What.CRASH | What.HANG:
            alive = [process for process in world.factory.alive if process.spec.model == fault.target]
            for process in alive[-1:]:
                if fault.what is What.CRASH:
                    process.crash()
                else:
                    process.hang() if fault.amount else process.thaw()
        case What.FOREIGN:
            hardware.take_away(fault.target, round(fault.amount * GIB))
        case What.LAG:
            hardware.lag(fault.amount, fault.target)
        case What.QUERY_TIME:
            hardware.query_time = fault.amount
        case What.READS_FIRST:
            hardware.reads_first = bool(fault.amount)
        case What.QUERIES_FAIL:
            hardware.failing = bool(fault.amount)
        case What.QUERIES_RAISE:
            hardware.error = OSError("simulated") if fault.amount else None
        case What.VANISH:
            (hardware.vanished.add if fault.amount else hardware.vanished.discard)(fault.target)
        case What.NO_FIGURES:
            hardware.silent = bool(fault.amount)
        case What.MEMORY_FAILS:
            hardware.memory_failing = bool(fault.amount)
        case What.OUT_OF_MEMORY:
            world.scheduler.runtime_out_of_memory()
        case What.CLOSE:
            world.close()
        case What.END:
            world.stop()


class _Step(trio.abc.Instrument):
    """Does something after the n-th step of any task."""

    def __init__(self, steps: int, action: Callable[[], None]) -> None:
        self._left, self._action = steps, action

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if not self._left:
            self._action()
