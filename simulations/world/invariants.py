"""What must hold after every step, checked from outside (races.md, section 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from trio_ollama.scheduler import Scheduler
from trio_ollama.scheduler.core.lifecycle import State

from .runners import SimulatedRunnerFactory

__all__ = ["leftovers", "violations"]

WITH_PROCESS = (State.LOADING, State.READY, State.DRAINING, State.STOPPING)


def violations(scheduler: Scheduler, factory: SimulatedRunnerFactory) -> Iterator[str]:
    """Broken invariants at this moment, in words."""
    fleet = scheduler.fleet
    runners = list(fleet.runners.values())
    owned = {runner.pid for runner in runners if runner.state in WITH_PROCESS}
    for process in factory.alive:
        if process.pid not in owned:
            yield f"I01: process {process.pid} has no record"
    for model, count in Counter(process.spec.model for process in factory.alive).items():
        if count > 1:
            yield f"I05: {count} processes of {model}"
    for process in factory.spawned:
        if process.most_at_once > process.spec.parallel:
            yield f"slots: process {process.pid} worked for {process.most_at_once} calls at once"
    for runner in runners:
        where = f"generation {runner.gen} ({runner.state})"
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
    loading = [runner for runner in runners if runner.loading]
    locks = Counter(id_ for runner in loading for id_ in runner.placement.load_lock)
    for id_, count in locks.items():
        if count > 1:
            yield f"I06: {count} loads on {id_}"
    for device in fleet.devices:
        reserved = sum(runner.holds(device.id) for runner in runners)
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
