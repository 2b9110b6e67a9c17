"""The requests that hold no lease yet, in order of arrival: where each stands, what it claims and why it waits."""

from __future__ import annotations

from collections.abc import Mapping

from .decisions import Because, Wait
from .effects import Rearm, Refused
from .events import RequestRefused, RequestWaits
from .overtaking import Overtakers
from .records import NOTHING, Runner, Waiter
from .step import Step
from .values import Demand, LaunchConfig

__all__ = ["Queue"]


class Queue:
    """One queue for the whole machine. `bound`: how many may wait, at all stages (I13)."""

    def __init__(self, step: Step, runners: Mapping[int, Runner], bound: int) -> None:
        self.waiters: dict[int, Waiter] = {}
        """By seq, ascending."""
        self.by_model: dict[str, dict[int, Waiter]] = {}
        """The same, by model key and then by seq."""
        self.overtakers = Overtakers()
        self.measuring: set[int] = set()
        """Those who wait for fresh memory figures."""
        self.closed = False
        """The server is shutting down: who still waits will be told so."""
        self.last_seq = 0
        self._step = step
        self._runners = runners
        self._bound = bound

    @property
    def waiting(self) -> int:
        """Requests without a slot, at any stage (I13)."""
        return len(self.waiters) + sum([len(runner.slot_queue) for runner in self._runners.values()])

    def enter(self, demand: Demand, wanted: LaunchConfig) -> Waiter:
        """A request comes, and is the last one. `wanted` is interned: its identity is a key."""
        self.last_seq = seq = self.last_seq + 1
        self.waiters[seq] = waiter = Waiter(seq, demand, wanted, self._step.now)
        self.by_model.setdefault(waiter.key, {})[seq] = waiter
        return waiter

    def remove(self, seq: int) -> Waiter:
        """The waiter leaves the queue, and its claim goes with it (I10)."""
        waiter = self.waiters.pop(seq)
        queue = self.by_model[waiter.key]
        del queue[seq]
        if not queue:
            del self.by_model[waiter.key]
        self.claim(waiter, NOTHING)
        self.measuring.discard(seq)
        return waiter

    def refuse(self, seq: int, because: Because, facts: str) -> None:
        name = self.remove(seq).demand.model.name
        self._step.publish(RequestRefused(self._step.now, name, seq, because, facts))
        self._step.emit(Refused(seq, because, facts))

    def claim(self, waiter: Waiter, gens: frozenset[int]) -> None:
        """The waiter wants these generations gone, and no others any longer."""
        for gen in sorted(waiter.claim - gens):
            if self._runners[gen].claimed_by == waiter.seq:
                self._runners[gen].claimed_by = None
        for gen in sorted(gens):
            self._runners[gen].claimed_by = waiter.seq
        for gen in sorted(waiter.claim ^ gens):
            self._step.emit(Rearm(gen))  # somebody waits for its requests to end, or no longer (R81)
        waiter.claim = gens

    def unclaim(self, runner: Runner) -> None:
        """It goes already, for whatever reason: nobody has to wish for it."""
        if runner.claimed_by is not None:
            self.waiters[runner.claimed_by].claim -= {runner.gen}
            runner.claimed_by = None

    def wait(self, wait: Wait) -> None:
        """Why a waiter waits; told if that is another reason than before."""
        waiter, now = self.waiters[wait.seq], self._step.now
        if waiter.wait is None or waiter.wait.because is not wait.because:
            name = waiter.demand.model.name
            self._step.publish(RequestWaits(now, name, waiter.seq, wait.because, wait.by, wait.resource, wait.bytes))
            waiter.since = now
        waiter.wait = wait
        waiter.behind = wait.by if wait.because is Because.BEHIND_OWN_MODEL else None
        if wait.because is Because.MEASURING:
            self.measuring.add(waiter.seq)
            # It may still turn out to get its load at once, and is not refused before that is known (I13).
            waiter.admitted = waiter.admitted or self.waiting <= self._bound
        else:
            self.measuring.discard(waiter.seq)
            waiter.admitted = True

    def overtaken(self, seq: int, runner: Runner) -> None:
        """The request `seq`, which waits no more, was given a runner that an earlier one wants gone."""
        self.overtakers.note(seq, runner.reservation, oldest=next(iter(self.waiters), seq))
