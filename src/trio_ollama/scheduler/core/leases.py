"""Leases and slots. A lease is a request's right to use one generation (I03), a slot one of the calls it works on.

A lease without a slot stands in its runner's queue for one, in order. A slot is taken until the child has confirmed the
end of the call it was for (R08), which may be later than the end of the lease.
"""

from __future__ import annotations

from collections.abc import Mapping

from .decisions import Because, Grant
from .effects import Granted, Lost, Refused, SlotGranted
from .events import LeaseGranted, LeaseLost, LeaseReleased, RequestRefused
from .records import Lease, Runner, Waiter
from .step import Step

__all__ = ["Leases"]


class Leases:
    """Which request holds a lease on which generation. All but `grant` are harmless for a lease that is gone."""

    def __init__(self, step: Step, runners: Mapping[int, Runner]) -> None:
        self._step = step
        self._runners = runners
        self._gens: dict[int, int] = {}
        """By seq."""

    def __len__(self) -> int:
        return len(self._gens)

    def grant(self, grant: Grant, waiter: Waiter) -> None:
        step, seq, gen, demand = self._step, grant.seq, grant.gen, waiter.demand
        runner = self._runners[gen]
        runner.leases[seq] = Lease(seq, demand, wants_slot=demand.slot, since=step.now)
        runner.served += 1
        self._gens[seq] = gen
        waited = step.now - waiter.arrived
        step.publish(
            LeaseGranted(step.now, runner.model.name, seq, gen, grant.because, grant.slot, waited, grant.overtook)
        )
        step.emit(Granted(seq, gen))
        if demand.slot:
            runner.slot_queue.append(seq)
            self._hand_out(runner)

    def release(self, seq: int, *, settled: bool) -> Runner | None:
        """The lease ends; returns its runner, or None if it is gone (I03, R13)."""
        gen = self._gens.pop(seq, None)
        if gen is None:
            return None
        runner = self._runners[gen]
        lease = runner.leases.pop(seq)
        self._step.publish(LeaseReleased(self._step.now, runner.model.name, seq, gen, len(runner.leases)))
        self._take_back(runner, lease, settled=settled)
        self._hand_out(runner)
        return runner

    def want_slot(self, seq: int) -> bool:
        """False if the lease is gone."""
        gen = self._gens.get(seq)
        if gen is None:
            return False
        runner = self._runners[gen]
        lease = runner.leases[seq]
        lease.wants_slot, lease.since = True, self._step.now
        runner.slot_queue.append(seq)
        self._hand_out(runner)
        return True

    def return_slot(self, seq: int, *, settled: bool) -> None:
        """The lease stays, without a slot and without the wish for one."""
        gen = self._gens.get(seq)
        if gen is None:
            return
        runner = self._runners[gen]
        lease = runner.leases[seq]
        self._take_back(runner, lease, settled=settled)
        lease.holds_slot = lease.wants_slot = False
        self._hand_out(runner)

    def settle(self, runner: Runner) -> None:
        """The child has confirmed the end of a call whose request had left before (R08)."""
        if runner.held_slots:
            runner.held_slots -= 1
            self._hand_out(runner)

    def lose(self, runner: Runner, because: Because | None, error: str) -> None:
        """All leases of a runner end, with one error each (R80)."""
        for seq in runner.leases:
            del self._gens[seq]
            self._step.publish(LeaseLost(self._step.now, runner.model.name, seq, runner.gen, error))
            self._step.emit(Lost(seq, because, error))
        runner.leases.clear()
        runner.slot_queue.clear()
        runner.held_slots = 0

    def turn_away(self, runner: Runner) -> None:
        """The server shuts down: nobody waits for a first slot any longer (I25)."""
        for seq in [seq for seq in runner.slot_queue if runner.leases[seq].demand.slot]:
            runner.slot_queue.remove(seq)
            del runner.leases[seq], self._gens[seq]
            self._step.publish(RequestRefused(self._step.now, runner.model.name, seq, Because.SHUTTING_DOWN, ""))
            self._step.emit(Refused(seq, Because.SHUTTING_DOWN, ""))

    @staticmethod
    def _take_back(runner: Runner, lease: Lease, *, settled: bool) -> None:
        """The slot that `lease` holds, or its place in the queue for one."""
        if lease.holds_slot:
            if settled:
                runner.held_slots -= 1
        elif lease.wants_slot:
            runner.slot_queue.remove(lease.seq)

    def _hand_out(self, runner: Runner) -> None:
        while runner.slot_queue and runner.held_slots < runner.slots:
            seq = runner.slot_queue.popleft()
            lease = runner.leases[seq]
            lease.holds_slot, lease.since = True, self._step.now
            runner.held_slots += 1
            self._step.emit(SlotGranted(seq))
