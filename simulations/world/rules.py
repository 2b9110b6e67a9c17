"""What must hold for our scheduler all the time, judged with a memory of what was before (docs/races.md, invariants).

`invariants` looks at one moment; the rules here need the one before, too: who came first, what a deadline was, which
state a runner had. Each is judged where it can break: at an event, after a step, or when nothing can run any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from simulations.yardsticks import HEAD_STARTS, ORDER
from trio_ollama.hardware.contract import CPU
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.plan import plan
from trio_ollama.scheduler.core.records import Runner
from trio_ollama.scheduler.core.reload import difference
from trio_ollama.scheduler.core.values import MODELS, DeviceFacts
from trio_ollama.scheduler.tickets import Ticket

from .clients import Client
from .invariants import overbooked, violations
from .keep_alives import KeepAlives
from .second_opinion import serves

if TYPE_CHECKING:
    from .world import World

__all__ = ["Rules"]

OURS_TO_END: Final = (Because.EVICTED_FOR, Because.RELOAD_FOR)
BLINK: Final = 0.2
"""Seconds."""


class Rules:
    """`broken` collects what did not hold, in words, the name of the rule first."""

    def __init__(self, world: World) -> None:
        self.broken: list[str] = []
        self._world = world
        self._rank: dict[int, int] = {}
        self._keep_alives = KeepAlives()
        self._claimed: dict[int, tuple[int, int]] = {}
        """(claiming request, last request that had come by then), by generation."""
        self._overtaken: dict[int, int] = {}
        self._starters: set[int] = set()
        self._waited: set[int] = set()
        """Requests that had to wait."""
        self._reduced: dict[str, int] = {}
        """The smallest context that a model was to be tried with after it had run out of memory."""
        self._devices: Sequence[DeviceFacts] = ()
        self._loads = 0
        """As they were after the last step."""
        self._seen = 0
        """The scheduler's last step that was seen at rest, when, and whether what it left has been judged."""
        self._seen_at = 0.0
        self._judged = True
        self._line: list[Ticket] = []
        """Requests that waited for figures when it was last looked."""
        self._processes = 0
        self._last_exit = 0
        """Nanoseconds."""
        self._taken: dict[int, float] = {}
        """When a runner was taken away from a lease, by the number of its request."""

    # -- when something happened ------------------------------------------------------------------------------------

    def happened(self, event: ev.Event) -> None:
        """In the middle of a step, right when the scheduler tells of it."""
        match event:
            case ev.LeaseGranted():
                self.broken += self._granted(event)
            case ev.RequestWaits():
                self.broken += self._waits(event)
            case ev.RetryPlanned(num_ctx=int(num_ctx)):
                self._reduced[event.model] = min(num_ctx, self._reduced.get(event.model, num_ctx))
            case ev.LoadStarted():
                self._starters.add(event.seq)
                self.broken += self._load_started(event)
            case ev.RunnerLoaded(gen=gen):
                self._keep_alives.loaded(gen, event.at, self._world.scheduler.fleet.policy.keep_alive)
                self.broken += self._counted(event)
            case ev.LeaseReleased(gen=gen, leases=0):
                self._keep_alives.idle(gen, event.at)
            case ev.LeaseLost(gen=gen, seq=seq):
                if self._world.scheduler.fleet.runners[gen].state is State.STOPPING:
                    self._taken[seq] = event.at / 1e9
            case ev.DrainStarted():
                self.broken += self._drain_started(event)
            case ev.RequestRefused(because=Because.QUEUE_FULL, seq=seq):
                fleet = self._world.scheduler.fleet
                if fleet.waiting < fleet.policy.queue_bound:
                    self.broken.append(f"I13: request {seq} is refused, but only {fleet.waiting} wait")
            case ev.RequestRefused(because=Because.SHUTTING_DOWN):
                # It may have waited for a slot, under a lease that goes with it.
                for gen, runner in self._world.scheduler.fleet.runners.items():
                    if not runner.leases and self._keep_alives.busy(gen):
                        self._keep_alives.idle(gen, event.at)

    def _waits(self, wait: ev.RequestWaits) -> Iterator[str]:
        """The bound, for those that have just come: by their first reason, which spares head starts (I13)."""
        fleet, seq = self._world.scheduler.fleet, wait.seq
        if seq in self._waited:
            return
        self._waited.add(seq)
        if fleet.waiting > fleet.policy.queue_bound:
            because = wait.because
            if because not in HEAD_STARTS or (because is Because.LOADING and seq not in self._starters):
                yield f"I13: request {seq} queues as number {fleet.waiting}"

    def _granted(self, grant: ev.LeaseGranted) -> Iterator[str]:
        world, fleet = self._world, self._world.scheduler.fleet
        runner = fleet.runners[grant.gen]
        demand = runner.leases[grant.seq].demand
        what = f"request {grant.seq} gets generation {grant.gen}"
        if runner.state is not State.READY:
            yield f"I02: {what}, which is {runner.state}"
        if all(process.pid != runner.pid for process in world.factory.alive):
            yield f"I02: {what}, whose process {runner.pid} is gone"
        wants = demand.options
        reduced = self._reduced.get(demand.model.name, wants.num_ctx)
        if wants.num_ctx_auto and wants.num_ctx > reduced:
            wants = replace(wants, num_ctx=reduced)  # for those who waited when a load had run out of memory (R49)
        if runner.key != demand.model.key or not serves(runner.config, wants):
            yield f"I02: {what}, which is not what it asked for"
        if not runner.open_to(grant.seq):
            yield f"R26: {what}, which was stopped before it came"
        claimer = runner.claimed_by
        if claimer is not None and claimer < grant.seq and grant.because is not Because.FIRST_OF_LOAD:
            since = self._claimed.get(grant.gen)
            if since is not None and since[0] == claimer and grant.seq > since[1]:
                yield f"I23: {what}, which {claimer} had claimed before it came"
            self._overtaken[claimer] = self._overtaken.get(claimer, 0) + 1
            if self._overtaken[claimer] > fleet.policy.overtakes:
                yield f"I23: request {claimer} is overtaken {self._overtaken[claimer]} times"
        self._keep_alives.granted(grant.gen, demand.keep_alive)

    def _load_started(self, load: ev.LoadStarted) -> Iterator[str]:
        world, fleet = self._world, self._world.scheduler.fleet
        if fleet.closing:
            yield f"R68: a load of {load.model} starts although the server is shutting down"
        if round(world.hardware.asked_at * 1e9) < max(self._last_exit, self._exit_in_this_step(load.at)):
            yield f"R35: a load of {load.model} starts on figures from before the last exit"
        counted = sum(ORDER[runner.state] <= ORDER[State.DRAINING] for runner in fleet.runners.values())
        if counted > fleet.model_limit:
            yield f"I14: {counted} runners, {fleet.model_limit} allowed"
        runner = fleet.runners[load.gen]
        for other in fleet.runners.values():
            if other.key == runner.key and other is not runner and other.state not in (State.RECOVERING, State.GONE):
                yield f"I05: a load of {load.model} starts beside generation {other.gen} ({other.state})"
        if any(process.spec.model == runner.model.path for process in world.factory.alive):
            yield f"I05: a load of {load.model} starts before its last process is gone"
        for id_, amount in runner.reservation.items():
            device = next((device for device in fleet.devices if device.id == id_), None)
            if device is not None and id_ != CPU and amount:
                held = sum(other.holds(id_) for other in fleet.runners.values())
                if held > max(0, device.total - device.overhead):
                    yield f"I07: {held} bytes of {device.total} on {id_} are reserved with {load.model} ({amount})"

    def _counted(self, loaded: ev.RunnerLoaded) -> Iterator[str]:
        """What the child has put on each device is what is held for it from now on; in RAM it may grow."""
        fleet = self._world.scheduler.fleet
        runner = fleet.runners[loaded.gen]
        process = next(process for process in self._world.factory.spawned if process.pid == loaded.pid)
        totals = {device.id: device.total for device in fleet.devices}
        for id_ in {**runner.reservation, **process.footprint}:
            took, held = process.footprint.get(id_, 0), runner.reservation.get(id_, 0)
            took = min(took, totals.get(id_, took))
            if held < took or (held > took and id_ not in (CPU, MODELS)):
                yield f"I07: {held} bytes of {id_} are held for {loaded.model}, which has {took} there"

    def _exit_in_this_step(self, now: int) -> int:
        """`now`, if a process ended just before; else 0."""
        for gen, runner in self._world.scheduler.fleet.runners.items():
            if runner.state is State.RECOVERING and self._rank.get(gen, 0) < ORDER[State.RECOVERING]:
                return now
        return 0

    def _drain_started(self, drain: ev.DrainStarted) -> Iterator[str]:
        fleet = self._world.scheduler.fleet
        runner = fleet.runners[drain.gen]
        which = f"generation {drain.gen}"
        if drain.because is Because.EXPIRED and drain.at < self._keep_alives.end(drain.gen):
            yield f"I15: {which} expires before its time"
        if drain.because in OURS_TO_END:
            waiter = fleet.waiters.get(drain.seq or 0)
            if runner.leases:
                yield f"I04: {which} is taken from under its leases for request {drain.seq}"
            if waiter is None:
                yield f"R02: {which} goes for request {drain.seq}, which does not wait"
            elif drain.because is Because.RELOAD_FOR and serves(runner.config, waiter.demand.options):
                yield f"I26: {which} is loaded anew for request {drain.seq}, which it serves as it is"
            if not runner.served and not runner.finish_load and not fleet.policy.finish_abandoned_load:
                yield f"R44: {which} goes without having served anybody"

    # -- after a step -----------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """After a step of a task that changed the scheduler's state."""
        world = self._world
        fleet = world.scheduler.fleet
        self.broken += violations(world.scheduler, world.factory)
        if fleet.devices is not self._devices or fleet._loads.last_gen > self._loads:
            self._devices, self._loads = fleet.devices, fleet._loads.last_gen
            self.broken += overbooked(fleet)
        self.broken += self._after_step()

    def _after_step(self) -> Iterator[str]:
        scheduler = self._world.scheduler
        fleet = scheduler.fleet
        leases = 0
        for gen, runner in fleet.runners.items():
            leases += len(runner.leases)
            rank, before = ORDER[runner.state], self._rank.get(gen, -1)
            if rank != before:
                if rank < before:
                    yield f"I16: generation {gen} went back to {runner.state}"
                if runner.state is State.RECOVERING:
                    self._last_exit = scheduler._now()
                self._rank[gen] = rank
            if runner.claimed_by is not None:
                if runner.claimed_by not in fleet.waiters or gen not in fleet.waiters[runner.claimed_by].claim:
                    yield f"I10: generation {gen} is claimed by {runner.claimed_by}, who does not want it"
                elif self._claimed.get(gen, (0, 0))[0] != runner.claimed_by:
                    self._claimed[gen] = runner.claimed_by, fleet._queue.last_seq
            elif gen in self._claimed:
                del self._claimed[gen]
            if runner.state is State.READY and runner.key in fleet.queues:
                yield from self._nobody_is_kept_from(runner)
        known = sum([ticket.error is None for ticket in scheduler._tickets.values()])
        if known != leases + len(fleet.waiters):
            yield f"I03: {leases} leases and {len(fleet.waiters)} waiters, but {known} requests"
        if self._line or scheduler._unannounced:
            yield from self._line_is_kept()
        spawned = self._world.factory.spawned
        if len(spawned) > self._processes:
            for process in spawned[self._processes :]:
                for runner in fleet.runners.values():
                    if runner.pid == process.pid and runner.state is State.STOPPING:
                        yield f"R03: process {process.pid} is started for a load that was given up before"
            self._processes = len(spawned)

    def _nobody_is_kept_from(self, runner: Runner) -> Iterator[str]:
        for seq, waiter in self._world.scheduler.fleet.queues[runner.key].items():
            closed = runner.claimed_by is not None and runner.claimed_by < seq
            if not closed and runner.open_to(seq) and difference(runner.config, waiter.wanted) is None:
                yield f"I22: request {seq} waits although generation {runner.gen} is open to it"

    def _line_is_kept(self) -> Iterator[str]:
        """Who waited for figures is let in in the order of arrival (I23)."""
        seqs = [ticket.seq for ticket in self._line if ticket.seq]
        if seqs != sorted(seqs):
            yield f"I23: requests were let in in the order {seqs}"
        self._line = list(self._world.scheduler._unannounced)

    # -- when nothing can run any more ------------------------------------------------------------------------------

    def quiet(self, now: float, then: float) -> None:
        """Before the clock goes on to the instant `then`, or the world ends."""
        scheduler = self._world.scheduler
        if self._line or scheduler._unannounced:
            self._line = list(scheduler._unannounced)
        if scheduler._nursery is None or scheduler.fleet.closing:
            return
        if scheduler._steps != self._seen:
            self._seen, self._seen_at, self._judged = scheduler._steps, now, False
            self._keep_alives.note(scheduler.fleet.runners)
        if late := self._keep_alives.overdue(now):
            self.broken.append(f"I15: generations {late} outlive their keep-alive")
        # What lasts no longer than a blink costs nobody anything, and is most of what there is to be judged.
        if not self._judged and then > self._seen_at + BLINK:
            self._judged = True
            self.broken += self._at_rest(round(now * 1e9))

    def _at_rest(self, now: int) -> Iterator[str]:
        world = self._world
        scheduler, fleet = world.scheduler, world.scheduler.fleet
        fleet.now = now
        more = plan(fleet)
        if more:
            yield f"I11: somebody sleeps although the planner would still decide {more}"
        alive = [process.pid for process in world.factory.alive]
        for view in scheduler.snapshot():
            if view.pid not in alive:
                yield f"I20: {view.name} is shown although its process is gone"
        assert scheduler._nursery is not None
        tasks, expected = len(scheduler._nursery.child_tasks), 1 + len(scheduler._supervisors)
        if tasks > expected:
            names = sorted(task.name for task in scheduler._nursery.child_tasks)
            yield f"I18: {tasks} tasks, {expected} are known: {names}"

    # -- when a client has ended ------------------------------------------------------------------------------------

    def ended(self, client: Client) -> None:
        """In the step in which its request ended: it holds nothing any more (I10)."""
        scheduler = self._world.scheduler
        # Its options are its own; the rest of its demand may have been replaced by what was learnt of the model.
        options = client.script.demand.options
        held: list[str] = []
        for ticket in scheduler._tickets.values():
            if ticket.demand.options is options:
                held.append("a ticket")
        for ticket in scheduler._unannounced:
            if ticket.demand.options is options:
                held.append("a place in line for figures")
        for waiter in scheduler.fleet.waiters.values():
            if waiter.demand.options is options:
                held.append("a place in the queue")
        for runner in scheduler.fleet.runners.values():
            for lease in runner.leases.values():
                if lease.demand.options is options:
                    held.append(f"a lease on generation {runner.gen}")
        if held:
            self.broken.append(f"I10: {client.name} has ended and still holds {', '.join(held)}")
        self._goes_at_once(client)

    def _goes_at_once(self, client: Client) -> None:
        """Nobody goes on waiting for a runner that was taken away: it may be beyond answering (R08, R81)."""
        since = None if client.lease is None else self._taken.get(client.lease._ticket.seq)
        if since is not None and client.ended_at is not None:
            script = client.script
            latest = since + script.hold + script.pause
            if client.ended_at > latest + 1e-6:
                self.broken.append(
                    f"R81: {client.name} goes on until {client.ended_at:g}, its runner was taken away at {since:g}"
                )
