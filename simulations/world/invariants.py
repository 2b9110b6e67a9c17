"""What must hold after every step, checked from outside (races.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trio_ollama.scheduler import Scheduler
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.records import Runner

from .runners import SimulatedRunnerFactory

__all__ = ["leftovers", "violations"]

WITH_PROCESS = (State.LOADING, State.READY, State.DRAINING, State.STOPPING)


class _Where:
    """A runner in words, which are hardly ever needed."""

    __slots__ = ("_runner",)

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def __str__(self) -> str:
        return f"generation {self._runner.gen} ({self._runner.state})"


def violations(scheduler: Scheduler, factory: SimulatedRunnerFactory) -> Iterator[str]:
    """Broken invariants at this moment, in words."""
    fleet = scheduler.fleet
    runners = list(fleet.runners.values())
    owned = {runner.pid for runner in runners if runner.state in WITH_PROCESS}
    models = set()
    for process in factory.spawned:
        if process.exited is None:
            if process.pid not in owned:
                yield f"I01: process {process.pid} has no record"
            if process.spec.model in models:
                yield f"I05: several processes of {process.spec.model}"
            models.add(process.spec.model)
        if process.most_at_once > process.spec.parallel:
            yield f"slots: process {process.pid} worked for {process.most_at_once} calls at once"
    for runner in runners:
        where = _Where(runner)
        if runner.leases and runner.state not in (State.READY, State.DRAINING):
            yield f"I02: {where} has leases"
        if not 0 <= runner.held_slots <= runner.slots:
            yield f"slots: {where} has {runner.held_slots} of {runner.slots}"
        if sum(lease.holds_slot for lease in runner.leases.values()) > runner.held_slots:
            yield f"slots: {where} has more holders than slots held"
        if runner.slot_queue and runner.held_slots < runner.slots:
            yield f"I11: {where} has a free slot and somebody who waits for it"
        for seq in runner.leases:
            if seq in fleet.waiters:
                yield f"I03: request {seq} waits and has a lease"
    locked: set[str] = set()
    for runner in runners:
        if runner.loading:
            if not locked.isdisjoint(runner.placement.load_lock):
                yield f"I06: several loads on {sorted(locked & runner.placement.load_lock)}"
            locked |= runner.placement.load_lock
    for device in fleet.devices:
        # What was promised; a load that turns out to take more than that overbooks, and nothing can be done about it.
        promised = [(runner.holds(device.id), runner.placement.reservation.get(device.id, 0)) for runner in runners]
        reserved = sum(map(min, promised))
        if reserved > device.total:
            yield f"I07: {reserved} of {device.total} bytes of {device.id} are reserved"


def leftovers(scheduler: Scheduler, factory: SimulatedRunnerFactory, in_use: Mapping[str, int]) -> Iterator[str]:
    """What is still there when nothing should be (I24)."""
    if scheduler.fleet.waiters:
        yield f"waiters {list(scheduler.fleet.waiters)}"
    for runner in scheduler.fleet.runners.values():
        yield f"generation {runner.gen} in state {runner.state} with leases {list(runner.leases)}"
    if scheduler._tickets:
        yield f"tickets {list(scheduler._tickets)}"
    if scheduler._supervisors:
        yield f"supervisors {list(scheduler._supervisors)}"
    for process in factory.alive:
        yield f"process {process.pid}"
    if in_use:
        yield f"memory {dict(in_use)}"
    tasks = sorted(task.name for task in scheduler._nursery.child_tasks) if scheduler._nursery is not None else []
    if tasks not in ([], ["measure"]):
        yield f"tasks {tasks} (I18)"
