"""Which of the situations that have to be reached a run came into.

Each is recognised from what a run leaves: the scheduler's events, its clients and processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from simulations.world.clients import Client, Outcome
from simulations.world.runners import SimulatedRunner
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import Event, State

from .goals import Goal
from .run import Run
from .scenario import Fault, What

__all__ = ["reached"]

_LEFT: Final = {
    Because.BEHIND: Goal.LEFT_QUEUED,
    Because.BEHIND_OWN_MODEL: Goal.LEFT_QUEUED,
    Because.DEVICE_LOADING: Goal.LEFT_BEHIND_LOAD,
    Because.MEASURING: Goal.LEFT_MEASURING,
    Because.EVICTING_IDLE: Goal.LEFT_EVICTING,
    Because.EVICTING_BUSY: Goal.LEFT_EVICTING,
    Because.MEMORY_DRAINING: Goal.LEFT_DRAINING,
    Because.MEMORY_RETURNING: Goal.LEFT_VRAM_WAIT,
    Because.RUNNER_CLAIMED: Goal.LEFT_CLAIMED,
    Because.PREDECESSOR_DRAINING: Goal.LEFT_PREDECESSOR,
    Because.OTHER_CONFIG_LOADING: Goal.LEFT_OTHER_OPTIONS,
    Because.EVICTING_ALL: Goal.LEFT_OOM_RETRY,
    Because.LOADING: Goal.LEFT_LOADING,
}
_SHUT: Final = {
    Because.LOADING: Goal.SHUTDOWN_LOADING,
    Because.EVICTING_BUSY: Goal.SHUTDOWN_EVICTING,
    Because.MEMORY_DRAINING: Goal.SHUTDOWN_EVICTING,
    Because.MEMORY_RETURNING: Goal.SHUTDOWN_VRAM_WAIT,
    Because.BEHIND: Goal.SHUTDOWN_QUEUED,
    Because.BEHIND_OWN_MODEL: Goal.SHUTDOWN_QUEUED,
    Because.DEVICE_LOADING: Goal.SHUTDOWN_QUEUED,
}
_REFUSED: Final = {
    Because.QUEUE_FULL: Goal.QUEUE_FULL,
    Because.NEVER_FITS: Goal.NEVER_FITS,
    Because.CRASH_BACKOFF: Goal.CRASH_BACKOFF,
    Because.PREDECESSOR_STUCK: Goal.PREDECESSOR_STUCK,
}
_PLACED: Final = {"group": Goal.LOAD_WIDE, "explicit_partial": Goal.LOAD_PARTIAL, "cpu": Goal.LOAD_CPU}
_ROWS: Final = {
    (State.SPAWNING, Event.SPAWN_FAILED): Goal.SPAWN_FAILED,
    (State.STOPPING, Event.SPAWN_FAILED): Goal.ABORTED_UNSPAWNED,
    (State.SPAWNING, Event.KILL): Goal.FORCED_UNSPAWNED,
    (State.LOADING, Event.EXITED): Goal.LOAD_DIED,
}
"""Rows of the lifecycle table that are situations by themselves."""


def reached(run: Run) -> frozenset[Goal]:
    """All situations that a run of ours came into."""
    scan = _Scan(run)
    found = {goal for event in run.events for goal in scan.event(event)}
    found.update(goal for client in run.clients for goal in scan.client(client))
    found.update(goal for process in run.processes for goal in scan.process(process))
    found.update(goal for fault in run.scenario.faults for goal in scan.fault(fault))
    found.update(goal for row, goal in _ROWS.items() if run.reached[row])
    return frozenset(found)


class _Scan:
    """Goes through the events once, in order, and remembers what the later ones are judged by."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waits: dict[int, Because] = {}
        """The last reason of each request that holds no lease."""
        self._loading: dict[int, ev.LoadStarted] = {}
        self._loaded: dict[int, ev.RunnerLoaded] = {}
        self._granted: dict[int, tuple[int, int]] = {}
        """(instant, number) of the leases a generation gave last."""
        self._drained: dict[int, ev.DrainStarted] = {}
        self._forced: set[int] = set()
        self._without_slot: dict[int, ev.LeaseGranted] = {}
        self._starters_gone: set[int] = set()
        """Loads whose first waiter has left."""
        self._evicted_for: set[int] = set()
        self._was_busy_for: set[int] = set()
        self._aborted: set[str] = set()
        self._retried: set[str] = set()
        self._stuck: set[int] = set()
        self._left: set[tuple[int, str]] = set()
        self._released: set[tuple[int, str]] = set()
        """(instant, model) of leases that ended without ever having had a slot."""
        self._lost: set[tuple[int, int]] = set()
        """(instant, generation) of lost leases."""
        self._expired: set[tuple[int, str]] = set()
        self._asked: set[tuple[int, str]] = set()
        self._measuring: list[int] = []
        self._places: list[tuple[int, str, int]] = []
        """(instant, GPU, generation) of loads."""
        self._gone: dict[int, int] = {}

    def event(self, event: ev.Event) -> Iterator[Goal]:
        match event:
            case ev.RequestWaits(seq=seq, because=because):
                self._waits[seq] = because
                if because is Because.MEASURING:
                    self._measuring.append(event.at)
                elif because is Because.EVICTING_BUSY:
                    self._was_busy_for.add(seq)
                if event.resource == "models":
                    yield Goal.MODEL_LIMIT
                yield from self._asks(event)
            case ev.RequestLeft(seq=seq):
                self._left.add((event.at, event.model))
                because = self._waits.get(seq, Because.BEHIND)
                yield _LEFT[because]
                self._starters_gone.update(gen for gen, load in self._loading.items() if load.seq == seq)
            case ev.RequestRefused():
                yield from self._refused(event)
            case ev.LeaseGranted():
                yield from self._lease(event)
            case ev.LeaseReleased(seq=seq):
                if seq in self._without_slot:
                    self._released.add((event.at, event.model))
            case ev.LeaseLost(gen=gen):
                self._lost.add((event.at, gen))
                if "did not let go" in event.error:
                    yield Goal.HUNG_SLOT
                elif "no answer" in event.error:
                    yield Goal.HUNG_CALL
            case ev.DrainStarted():
                yield from self._drain(event)
            case _:
                yield from self._life(event)

    def _life(self, event: ev.Event) -> Iterator[Goal]:
        match event:
            case ev.LoadStarted(gen=gen):
                if self._loading:
                    yield Goal.LOADS_IN_PARALLEL
                if event.model in self._aborted:
                    yield Goal.LOAD_AFTER_ABORT
                if event.kind in _PLACED:
                    yield _PLACED[event.kind]
                self._loading[gen] = event
                self._places += [(event.at, gpu, gen) for gpu in event.gpus]
                yield from self._asks(event)
            case ev.RunnerLoaded(gen=gen):
                del self._loading[gen]
                self._loaded[gen] = event
                if event.model in self._retried:
                    self._retried.discard(event.model)
                    yield Goal.OOM_RECOVERED
            case ev.LoadFailed(gen=gen) if gen in self._forced:
                self._retried.discard(event.model)
            case ev.LoadFailed():
                yield Goal.LOAD_STALLED if "timed out" in event.error else Goal.LOAD_FAILED
                if event.model in self._retried:
                    self._retried.discard(event.model)
                    yield Goal.OOM_FAILED
            case ev.RetryPlanned():
                self._retried.add(event.model)
                if event.alone:
                    yield Goal.OOM_EVICTS
                if event.num_ctx is not None:
                    yield Goal.OOM_STEPS_DOWN
            case ev.RunnerStuck(gen=gen):
                self._stuck.add(gen)
                yield Goal.STUCK
            case ev.RunnerGone(gen=gen):
                self._gone[gen] = event.at
                self._loading.pop(gen, None)
                if gen in self._stuck:
                    yield Goal.STUCK_GONE
                if event.how.startswith("memory not seen back"):
                    yield Goal.MEMORY_LOST
                elif event.how.startswith("memory back") and " 0.00 s" not in event.how:
                    yield Goal.MEMORY_LATE

    def _refused(self, event: ev.RequestRefused) -> Iterator[Goal]:
        if event.because in _REFUSED:
            yield _REFUSED[event.because]
        elif event.because is Because.SHUTTING_DOWN:
            if event.seq in self._without_slot:
                yield Goal.SHUTDOWN_SLOT
            elif (because := self._waits.get(event.seq)) in _SHUT:
                yield _SHUT[because]

    def _lease(self, event: ev.LeaseGranted) -> Iterator[Goal]:
        seq, gen = event.seq, event.gen
        at, number = self._granted.get(gen, (event.at, 0))
        self._granted[gen] = (event.at, number + 1 if at == event.at else 1)
        if not event.slot:
            self._without_slot[seq] = event
        if event.because is Because.FIRST_OF_LOAD and gen in self._starters_gone:
            yield Goal.LEFT_SHARED_LOAD
        if self._loaded[gen].at == event.at and self._granted[gen] == (event.at, 2):
            yield Goal.LOAD_SHARED
        if event.because is Because.LAST_CALL:
            yield Goal.LAST_CALL
        if seq in self._was_busy_for:
            yield Goal.EVICTED_BUSY
        yield from self._asks(event)

    def _drain(self, event: ev.DrainStarted) -> Iterator[Goal]:
        self._drained.setdefault(event.gen, event)
        self._loading.pop(event.gen, None)
        loaded = self._loaded.get(event.gen)
        match event.because:
            case Because.NO_WAITER_LEFT:
                self._aborted.add(event.model)
                yield Goal.LOAD_ABORTED
            case Because.EVICTED_FOR:
                if event.seq in self._evicted_for:
                    yield Goal.EVICTED_SEVERAL
                self._evicted_for.add(event.seq or 0)
                if event.seq not in self._was_busy_for:
                    yield Goal.EVICTED_IDLE
            case Because.RELOAD_FOR:
                yield Goal.RELOADED
            case Because.EXPIRED:
                self._expired.add((event.at, event.model))
                yield Goal.EXPIRED
                if (event.at, event.model) in self._asked:
                    yield Goal.EXPIRED_ON_REQUEST
                if event.gen not in self._granted:
                    yield Goal.LOAD_FINISHED_FOR_NOBODY
            case Because.STOPPED:
                if loaded is not None and loaded.at == event.at:
                    yield Goal.STOPPED_LOADING
                else:
                    yield Goal.STOPPED_BUSY if event.leases else Goal.STOPPED_IDLE
            case Because.FORCED:
                self._forced.add(event.gen)
                if loaded is None:
                    yield Goal.FORCED_LOADING
                elif event.leases:
                    yield Goal.FORCED_BUSY
            case Because.RUNTIME_OOM:
                yield Goal.OOM_RUNNING
            case Because.HUNG if not event.leases:  # else its leases tell why
                yield Goal.HUNG_SLOT
            case Because.FAULT:
                yield Goal.FAULT

    def _asks(self, event: ev.Event) -> Iterator[Goal]:
        """Somebody asks for a model, or gets it: in the very instant in which its keep-alive ended?"""
        self._asked.add((event.at, event.model))
        if (event.at, event.model) in self._expired:
            yield Goal.EXPIRED_ON_REQUEST

    def client(self, client: Client) -> Iterator[Goal]:
        if client.outcome is not Outcome.CANCELLED or client.ended_at is None:
            return
        script = client.script
        when = round(client.ended_at * 1e9), script.demand.model.name
        if client.granted_at is not None:
            if client.got < script.inputs:
                yield Goal.LEFT_BATCH
            elif client.got < script.tokens:
                yield Goal.LEFT_STREAM if client.streaming.is_set() else Goal.LEFT_PREFILL
            else:
                yield Goal.LEFT_HOLDING
        elif when in self._released:
            yield Goal.LEFT_SLOT
        elif script.leaves <= script.arrives:
            yield Goal.LEFT_AT_ONCE
        elif when not in self._left:
            yield Goal.LEFT_UNANNOUNCED

    def process(self, process: SimulatedRunner) -> Iterator[Goal]:
        if process.exited is None or process.exited.code <= 0 or process.ended_at is None:
            return
        gen = next((gen for gen, loaded in self._loaded.items() if loaded.pid == process.pid), None)
        if gen is None:
            return
        at = round(process.ended_at * 1e9)
        drained = self._drained.get(gen)
        if (at, gen) not in self._lost:
            if drained is None:
                yield Goal.CRASH_IDLE
        else:
            yield Goal.CRASH_BUSY if drained is None or drained.at > at else Goal.CRASH_DRAINING

    def fault(self, fault: Fault) -> Iterator[Goal]:
        at, until = round(fault.at * 1e9), round(self._run.scenario.last * 1e9)
        if not fault.amount:
            return
        if fault.what is What.VANISH and at < until:
            for began, gpu, gen in self._places:
                if gpu == fault.target and began < at < self._gone.get(gen, until):
                    yield Goal.VANISHED
        elif fault.what is What.END:
            if any(when >= at for when, _ in self._lost):
                yield Goal.SHUTDOWN_BUSY
        elif fault.what is What.CLOSE:
            for client in self._run.clients:
                if client.outcome is Outcome.ANSWERED and (client.granted_at or math.inf) < fault.at < (
                    client.ended_at or 0
                ):
                    yield Goal.SHUTDOWN_LETS_FINISH
        elif fault.what in (What.QUERIES_FAIL, What.QUERIES_RAISE):
            later = (
                round(end.at * 1e9)
                for end in self._run.scenario.faults
                if end.what is fault.what and not end.amount and end.at >= fault.at
            )
            if any(at <= measured <= min(later, default=until) for measured in self._measuring):
                yield Goal.QUERY_FAILED
