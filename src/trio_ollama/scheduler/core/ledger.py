"""The books of one planner pass: what has been given, claimed and kept so far, and what that leaves for the others.

The rules say who gets what (`plan.py`, `room.py`); here it is entered, as a decision and as a fact for all who come
later in the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .decisions import Abort, Because, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from .eviction import Candidates
from .pools import Pools
from .records import NOTHING, Runner, Waiter
from .values import MODELS, Placement
from .view import FleetView

__all__ = ["Ledger"]


class Ledger:
    def __init__(self, fleet: FleetView) -> None:
        runners = fleet.runners.values()
        self.decisions: list[Decision] = []
        self.pools = pools = Pools(fleet.devices, runners, fleet.model_limit)
        self.candidates = Candidates(runners, pools)
        self.decided: set[int] = set()
        """Who has got a lease, or was refused."""
        self.claimed: dict[int, int] = {}
        """By generation, the waiter that wants it gone."""
        self.last_call: set[str] = set()
        """Models whose runner has a new claim: waiters that are here already may still join, within the budget."""
        self.fronts: dict[str, int] = {}
        """The first blocked waiter of each model; the others will share its runner."""
        self.heads: dict[str, int] = {}
        """The earliest waiter that keeps a place on a resource."""
        self.locked: set[str] = set()
        """Devices on which no further load starts."""
        self.started: dict[str, StartLoad] = {}
        self.aborted: set[int] = set()
        self.spared: set[int] = set()
        """Claimed on old figures: not stopped before there are fresh ones."""
        self._fleet = fleet
        self._settled = 0
        """How many of those who waited at the start of the pass wait no more."""
        self._granted: set[int] = set()
        """Generations with a lease of this pass."""
        self._slots: dict[int, int] = {}
        """How many each of them has left, or any other that was looked at."""
        self._claimants: set[int] = set()
        self._reloading: set[int] = set()
        self._short: dict[int, tuple[str, int]] = {}
        """What each front lacks most at the moment: resource and amount."""
        self._overtaken: list[tuple[int, Mapping[str, int]]] = []
        """Who was granted by last call in this pass, and what that runner holds."""
        self._all = (pools.later, pools.soon, pools.now)

    # -- leases, and the bound of the queue -----------------------------------------------------------------------

    def grant(self, q: Waiter, runner: Runner, because: Because) -> None:
        gen = runner.gen
        slot = q.demand.slot and self.free_slots(runner) > 0
        self.decided.add(q.seq)
        self._granted.add(gen)
        self.candidates.granted(gen)
        if slot:
            self._slots[gen] -= 1
        if slot or not q.demand.slot:
            self._settled += 1
        overtook: tuple[int, ...] = ()
        if because is Because.LAST_CALL:
            overtook = (self.claimed[gen],)
            self._overtaken.append((q.seq, runner.reservation))
        self.decisions.append(Grant(q.seq, gen, because, slot, overtook))

    def free_slots(self, runner: Runner) -> int:
        if runner.gen not in self._slots:
            self._slots[runner.gen] = runner.free_slots
        return self._slots[runner.gen]

    def may_overtake(self, q: Waiter, runner: Runner) -> bool:
        """At most N later requests may join a runner that the oldest waiter on its resources wants gone (I23)."""
        for id_, amount in runner.reservation.items():
            head = self.heads.get(id_)
            if head is None or head > q.seq or not amount:
                continue
            now = sum(seq > head and id_ in held for seq, held in self._overtaken)
            if self._fleet.overtakers.of(head, id_) + now >= self._fleet.policy.overtakes:
                return False
        return True

    def full(self, q: Waiter) -> bool:
        """`q` is one too many, if it has to wait (I13)."""
        return not q.admitted and self._fleet.waiting - self._settled > self._fleet.policy.queue_bound

    def refuse(self, q: Waiter, because: Because, facts: str = "") -> None:
        self.decided.add(q.seq)
        self._settled += 1
        self.decisions.append(Refuse(q.seq, because, facts))

    # -- loads ----------------------------------------------------------------------------------------------------

    def load(
        self, q: Waiter, placement: Placement, because: Because, alternatives: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        now = self.pools.now
        if placement.kind == "explicit_partial":
            reservation = {id_: min(amount, now.get(id_, 0)) for id_, amount in placement.reservation.items()}
            placement = replace(placement, reservation=reservation)
        free = tuple((id_, now[id_]) for id_ in placement.reservation if id_ != MODELS)
        self.pools.draw(placement.reservation, now)
        self.locked |= placement.load_lock
        start = StartLoad(q.seq, q.key, q.wanted, placement, because, free, alternatives)
        self.started[q.key] = start
        self.decisions.append(start)
        self.wait(q, Because.LOADING)

    def abort(self, runner: Runner) -> None:
        self.aborted.add(runner.gen)
        self.decisions.append(Abort(runner.gen))
        self.pools.aborted(runner)

    # -- places and claims ----------------------------------------------------------------------------------------

    def wait(self, q: Waiter, because: Because, *, by: int | None = None) -> None:
        if q.claim and q.seq not in self._claimants:
            self.decisions.append(Claim(q.seq, NOTHING))  # what it claimed before is open again
        if q.wait is None or q.wait.because is not because or q.wait.by != by:
            self.decisions.append(Wait(q.seq, because, by, *self._short.get(q.seq, ("", 0))))

    def keep(self, q: Waiter, need: Mapping[str, int], *pools: dict[str, int]) -> None:
        """Become the front of its model and keep a place: these bytes are for nobody later.

        They are taken from `pools`, in that order; by default what comes last is taken first (row 10).
        """
        self.fronts.setdefault(q.key, q.seq)
        self._short[q.seq] = self.pools.short(need)
        self.pools.draw(need, *(pools or self._all))
        for id_, amount in need.items():
            if amount:
                self.heads.setdefault(id_, q.seq)

    def claim(self, q: Waiter, gens: frozenset[int], must_go: frozenset[int]) -> None:
        """`q` wants `gens` gone: `must_go` for a load of the same model, the others for their memory."""
        runners = self._fleet.runners
        self._claimants.add(q.seq)
        for gen in sorted(gens):
            runner = runners[gen]
            self.goes(runner)
            self.claimed[gen] = q.seq
            if gen in must_go:
                self._reloading.add(gen)
            if gen not in q.claim:
                self.last_call.add(runner.key)
        if gens != q.claim:
            self.decisions.append(Claim(q.seq, gens))

    def goes(self, runner: Runner) -> None:
        """What `runner` holds comes back with its last request: counted once, as nobody can claim it any more."""
        self.candidates.remove(runner.gen)
        self.pools.going(runner.held())

    def stop_claimed(self) -> None:
        """Step D: what is claimed and has no lease, not even one of this pass, stops at once."""
        for gen, seq in self.claimed.items():
            if self._idle(gen) and gen not in self.spared:
                because = Because.RELOAD_FOR if gen in self._reloading else Because.EVICTED_FOR
                others = tuple(other for other in sorted(self.candidates.gens) if self._idle(other))
                self.decisions.append(Drain(gen, because, seq, *self._short.get(seq, ("", 0)), others))

    def _idle(self, gen: int) -> bool:
        return not self._fleet.runners[gen].busy and gen not in self._granted
