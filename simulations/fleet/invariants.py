"""What must hold after every step of the pure fleet, checked from its records and from what the world saw.

Rule names are those of the docs (I.. invariants, R.. entries).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulations.yardsticks import HEAD_STARTS, ORDER
from trio_ollama.scheduler.core import effects as ef
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.decisions import Because, Decision
from trio_ollama.scheduler.core.lifecycle import ALIVE, State
from trio_ollama.scheduler.core.plan import plan
from trio_ollama.scheduler.core.values import FOREVER, RAM

from .decisions import DecisionChecks, Violation, compatible

if TYPE_CHECKING:
    from .world import Process, Request, World

__all__ = ["Checks"]


class Checks:
    def __init__(self, world: World) -> None:
        self.world = world
        self.steps = 0
        self.decisions = DecisionChecks(world)
        self._rank: dict[int, int] = {}
        self._idle_since: dict[int, int] = {}
        self._keep_alive: dict[int, int] = {}

    # -- one step -------------------------------------------------------------------------------------------------

    def before_step(self) -> None:
        self.steps += 1
        self.decisions.before_step()

    def before_decision(self, decision: Decision) -> None:
        self.decisions.before_decision(decision)

    def after_step(self) -> None:
        fleet = self.world.fleet
        self.decisions.after_step()
        self._queues_agree()
        self._states_go_forward()
        self._leases_agree()
        self._nobody_is_kept_from_a_ready_runner()
        self._keep_alive_holds()
        if self.decisions.loads_started:
            self._memory_suffices()
            self._loads_are_disjoint()
        more = plan(fleet)
        if more:
            raise Violation("fixpoint", f"a further pass would still decide {more}")

    def _queues_agree(self) -> None:
        fleet = self.world.fleet
        by_key: dict[str, list[int]] = {}
        for seq, waiter in fleet.waiters.items():
            by_key.setdefault(waiter.key, []).append(seq)
            for gen in waiter.claim:
                if fleet.runners[gen].state is not State.READY or fleet.runners[gen].claimed_by != seq:
                    raise Violation("I16", f"request {seq} claims generation {gen}, which is not its to claim")
        if by_key != {key: list(queue) for key, queue in fleet.queues.items()}:
            raise Violation("I10", "the queues by model and the waiters differ")
        if list(fleet.waiters) != sorted(fleet.waiters):
            raise Violation("I23", "the waiters are not in order of arrival")
        for runner in fleet.runners.values():
            if runner.claimed_by is not None and runner.gen not in fleet.waiters[runner.claimed_by].claim:
                raise Violation("I16", f"generation {runner.gen} is claimed by nobody who waits")

    def _states_go_forward(self) -> None:
        world = self.world
        active: set[str] = set()
        counted = 0
        for gen, runner in world.fleet.runners.items():
            rank = ORDER[runner.state]
            if rank < self._rank.get(gen, 0):
                raise Violation("I16", f"generation {gen} went back to {runner.state}")
            self._rank[gen] = rank
            if rank <= ORDER[State.READY]:
                if runner.key in active:
                    raise Violation("I05", f"two runners for {runner.key}")
                active.add(runner.key)
            counted += rank <= ORDER[State.DRAINING]
        if self.decisions.loads_started and counted > world.fleet.model_limit:
            raise Violation("I14", f"{counted} runners, {world.fleet.model_limit} allowed")
        for process in world.processes.values():
            if process.alive and (
                process.gen not in world.fleet.runners or world.fleet.runners[process.gen].state not in ALIVE
            ):
                raise Violation("I01", f"the process of generation {process.gen} has no record")

    def _leases_agree(self) -> None:
        ours = {
            request.seq: request.gen
            for request in self.world.by_seq.values()
            if request.gen is not None and request.outcome is None
        }
        theirs: dict[int, int] = {}
        for runner in self.world.fleet.runners.values():
            for seq in runner.leases:
                theirs[seq] = runner.gen
            if runner.held_slots > runner.slots or runner.held_slots < 0:
                raise Violation("I03", f"generation {runner.gen} has {runner.held_slots} of {runner.slots} slots out")
            if runner.slot_queue and runner.held_slots < runner.slots:
                raise Violation("I11", f"generation {runner.gen} has a free slot and somebody waiting for it")
        if ours != theirs:
            raise Violation("I03", f"leases differ: {set(ours.items()) ^ set(theirs.items())}")

    def _nobody_is_kept_from_a_ready_runner(self) -> None:
        fleet = self.world.fleet
        for runner in fleet.runners.values():
            if runner.state is State.READY:
                for seq, waiter in fleet.queues.get(runner.key, {}).items():
                    closed = runner.claimed_by is not None and runner.claimed_by < seq
                    if not closed and runner.open_to(seq) and compatible(runner.config, waiter.wanted):
                        raise Violation("I22", f"request {seq} waits although generation {runner.gen} is open to it")

    def _keep_alive_holds(self) -> None:
        now = self.world.now
        for runner in self.world.fleet.runners.values():
            if runner.state is State.READY and not runner.leases:
                keep = self._keep_alive[runner.gen]
                if keep != FOREVER and now > self._idle_since[runner.gen] + keep:
                    raise Violation("I15", f"generation {runner.gen} outlives its keep-alive")

    def _memory_suffices(self) -> None:
        fleet = self.world.fleet
        for device in fleet.devices:
            held = sum(runner.reservation.get(device.id, 0) for runner in fleet.runners.values())
            if held + device.overhead > device.total:
                raise Violation("I07", f"{held} bytes reserved on {device.id} of {device.total}")

    def _loads_are_disjoint(self) -> None:
        taken: set[str] = set()
        for runner in self.world.fleet.runners.values():
            if runner.state in (State.SPAWNING, State.LOADING):
                places = set(runner.placement.gpus)
                if runner.placement.kind in ("cpu", "partial", "explicit_partial"):
                    places.add(RAM)
                if taken & places:
                    raise Violation("I06", f"generation {runner.gen} loads beside another load on {taken & places}")
                taken |= places

    # -- effects, requests, events --------------------------------------------------------------------------------

    def before_effect(self, effect: ef.Effect) -> None:
        if isinstance(effect, ef.Stop) and effect.gen not in self.world.killed:
            for request in self.world.by_seq.values():
                if request.gen == effect.gen and request.outcome is None:
                    raise Violation("I04", f"generation {effect.gen} is stopped under request {request.seq}")

    def spawned(self, process: Process) -> None:
        for other in self.world.processes.values():
            if other is not process and other.alive and other.key == process.key:
                raise Violation("I05", f"two processes for {process.key}")

    def arrived(self, request: Request) -> None:
        """The bound holds for everybody but head starts (I13)."""
        fleet = self.world.fleet
        waiter = fleet.waiters.get(request.seq)
        waiting = len(fleet.waiters) + sum(len(runner.slot_queue) for runner in fleet.runners.values())
        if request.outcome is not None or request.slot or waiting <= self.world.work.policy.queue_bound:
            return
        if waiter is None:
            if request.arrival.demand.slot:
                raise Violation("I13", f"request {request.seq} queues for a slot as number {waiting}")
        elif self.decisions.first_reason[request.seq] not in HEAD_STARTS:
            raise Violation("I13", f"request {request.seq} queues as number {waiting}")
        elif self.decisions.first_reason[request.seq] is Because.LOADING and request.seq not in self.decisions.starters:
            raise Violation("I13", f"request {request.seq} queues for the load of another as number {waiting}")

    def holds_nothing(self, request: Request) -> None:
        fleet, seq = self.world.fleet, request.seq
        held = seq in fleet.waiters or any(seq in queue for queue in fleet.queues.values())
        for runner in fleet.runners.values():
            held = held or seq in runner.leases or seq in runner.slot_queue or runner.claimed_by == seq
        if held:
            raise Violation("I10", f"request {seq} has left, but is still known")

    def ended(self, request: Request) -> None:
        """Nobody waits longer than all who were there before it could take (I21)."""
        world = self.world
        if world.work.faults.stuck or request.arrival.inputs:
            return  # a batch queues anew for each of its inputs
        policy, work = world.work.policy, world.work
        generation = max(arrival.generation * max(1, arrival.inputs) for arrival in work.arrivals)
        one = work.load[1] + generation + work.exit + work.recovery + work.lag + 10**9
        troubles = 2 if work.faults.out_of_memory or work.faults.crash or work.faults.load_error else 1
        bound = troubles * (request.live_at_arrival + policy.overtakes + 1) * one
        if world.now - request.arrival.at > bound:
            raise Violation("I21", f"request {request.seq} took {(world.now - request.arrival.at) / 1e9:.1f} s")

    def happened(self, event: ev.Event) -> None:
        match event:
            case ev.RunnerLoaded(gen=gen):
                self._idle_since[gen] = event.at
                self._keep_alive[gen] = self.world.work.policy.keep_alive
            case ev.LeaseGranted(gen=gen, seq=seq):
                del self._idle_since[gen]
                demand = self.world.fleet.runners[gen].leases[seq].demand
                if demand.keep_alive is not None:
                    self._keep_alive[gen] = demand.keep_alive
                self._idle_since[gen] = 1 << 62
            case ev.LeaseReleased(gen=gen, leases=0):
                self._idle_since[gen] = event.at
            case ev.RequestRefused(because=Because.SHUTTING_DOWN):
                # Those who waited for a slot lose their lease with it.
                for gen, runner in self.world.fleet.runners.items():
                    if not runner.leases and gen in self._idle_since:
                        self._idle_since[gen] = min(self._idle_since[gen], event.at)
            case ev.DrainStarted(gen=gen, because=Because.EXPIRED):
                keep = self._keep_alive[gen]
                if keep == FOREVER or event.at < self._idle_since[gen] + keep:
                    raise Violation("I15", f"generation {gen} expires before its time")

    def at_the_end(self) -> None:
        """Nothing more can happen: everybody has an outcome, and nothing is left over (I09, I11, I24)."""
        world, fleet = self.world, self.world.fleet
        open_ = [request.seq for request in world.requests if request.outcome is None]
        if open_:
            reasons = {seq: waiter.wait for seq, waiter in fleet.waiters.items()}
            raise Violation("I11", f"requests {open_} wait for ever: {reasons}")
        for runner in fleet.runners.values():
            kept = runner.state is State.READY and self._keep_alive[runner.gen] == FOREVER and not runner.leases
            if not kept and not runner.stuck:
                raise Violation("I24", f"generation {runner.gen} is left {runner.state}")
        left = (fleet.waiters, fleet.queues, fleet.overtakers, fleet.oom_retries, fleet._memo, fleet._leases)
        if any(left):
            raise Violation("I24", f"left over: {left}")
        for id_ in world.driver.sizes:
            used = sum(process.used.get(id_, 0) for process in world.processes.values() if process.alive)
            if world.driver.used(id_, world.now) != used:
                raise Violation("I24", f"{world.driver.used(id_, world.now)} bytes in use on {id_}, {used} expected")
