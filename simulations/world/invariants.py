"""What must hold after every step, checked from outside (races.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trio_ollama.scheduler import Scheduler
from trio_ollama.scheduler.core.fleet import Fleet
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.records import Runner

from .factory import SimulatedRunnerFactory

__all__ = ["leftovers", "overbooked", "violations"]

WITH_PROCESS = frozenset({State.LOADING, State.READY, State.DRAINING, State.STOPPING})
WITH_LEASES = frozenset({State.READY, State.DRAINING})


def _named(runner: Runner) -> str:
    return f"generation {runner.gen} ({runner.state})"


def violations(scheduler: Scheduler, factory: SimulatedRunnerFactory) -> Iterator[str]:
    """Broken invariants at this moment, in words."""
    fleet = scheduler.fleet
    runners = fleet.runners.values()
    owned = [runner.pid for runner in runners if runner.state in WITH_PROCESS]
    models = set()
    for process in factory.alive:
        if process.pid not in owned:
            yield f"I01: process {process.pid} has no record"
        if process.spec.model in models:
            yield f"I05: several processes of {process.spec.model}"
        models.add(process.spec.model)
        if process.most_at_once > process.spec.parallel:
            yield f"slots: process {process.pid} worked for {process.most_at_once} calls at once"
    locked: set[str] = set()
    for runner in runners:
        leases, held, slots = runner.leases, runner.held_slots, runner.slots
        if leases:
            if runner.state not in WITH_LEASES:
                yield f"I02: {_named(runner)} has leases"
            if sum([lease.holds_slot for lease in leases.values()]) > held:
                yield f"slots: {_named(runner)} has more holders than slots held"
            if not leases.keys().isdisjoint(fleet.waiters):
                yield f"I03: requests {sorted(leases.keys() & fleet.waiters)} wait and have a lease"
        if not 0 <= held <= slots:
            yield f"slots: {_named(runner)} has {held} of {slots}"
        if runner.slot_queue and held < slots:
            yield f"I11: {_named(runner)} has a free slot and somebody who waits for it"
        if runner.loading:
            if not locked.isdisjoint(runner.placement.load_lock):
                yield f"I06: several loads on {sorted(locked & runner.placement.load_lock)}"
            locked |= runner.placement.load_lock


def overbooked(fleet: Fleet) -> Iterator[str]:
    """Broken promises: more is reserved than there is. Only a load, or another machine, can bring that about."""
    for device in fleet.devices:
        id_, reserved = device.id, 0
        for runner in fleet.runners.values():
            # What was promised; a load that turns out to take more overbooks, and nothing can be done about it.
            reserved += min(runner.reservation.get(id_, 0), runner.placement.reservation.get(id_, 0))
        if reserved > device.total:
            yield f"I07: {reserved} of {device.total} bytes of {id_} are reserved"


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
