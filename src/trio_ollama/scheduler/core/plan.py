"""The planner: who is granted a runner, which load starts, who must go, and who waits for what.

One pass looks at all waiters in arrival order. Whoever can use a loaded runner gets a lease at once; whoever fits gets
a load; whoever needs somebody else gone puts a claim on the smallest sufficient set of runners. A claimed runner takes
no later request and is stopped in the step in which it has no lease. Claims and places belong to their waiter and
vanish with it. A later load may only use bytes that no earlier waiter needs.

Pure: reads the fleet, changes nothing, returns decisions that their owner applies in the same synchronous step.
Rules 0 to 10, steps A to D, rows and faults are those of docs/scheduler.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from .decisions import Abort, Because, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from .eviction import Candidates
from .lifecycle import DRAINING, LOADING, READY, RECOVERING
from .placements import explicit_partial
from .pools import Pools
from .records import OomRetry, Runner, Waiter
from .reload import difference
from .values import MODELS, DeviceFacts, LaunchConfig, Placement, Policy

__all__ = ["FleetView", "plan"]

NOTHING: frozenset[int] = frozenset()


class FleetView(Protocol):
    """What the planner reads of the fleet."""

    @property
    def policy(self) -> Policy: ...

    @property
    def closing(self) -> bool: ...

    @property
    def facts_fresh(self) -> bool:
        """False when the memory figures are older than the last change; no load is started on such."""
        ...

    @property
    def devices(self) -> Sequence[DeviceFacts]: ...

    @property
    def runners(self) -> Mapping[int, Runner]:
        """By generation, ascending; without those that are gone."""
        ...

    @property
    def waiters(self) -> Mapping[int, Waiter]:
        """By seq, ascending."""
        ...

    @property
    def queues(self) -> Mapping[str, dict[int, Waiter]]:
        """The same waiters by model key, then by seq."""
        ...

    @property
    def waiting(self) -> int:
        """Requests that wait at any stage: the waiters, and leases without a slot (I13)."""
        ...

    @property
    def overtakers(self) -> Mapping[str, Sequence[int]]:
        """Per resource the seqs granted by last call, sorted."""
        ...

    @property
    def oom_retries(self) -> Mapping[str, OomRetry]: ...

    @property
    def model_limit(self) -> int: ...

    def backed_off(self, key: str) -> str | None:
        """The last error of a model whose runner keeps crashing, while it is not tried again (R78)."""
        ...

    def never_fits(self, waiter: Waiter) -> tuple[int, int] | None:
        """(needed, available) bytes if the waiter's model cannot be loaded even on the empty machine (R42)."""
        ...

    def placements(self, waiter: Waiter, base: Mapping[str, int]) -> tuple[Placement, ...]: ...


def plan(fleet: FleetView) -> tuple[Decision, ...]:
    """One pass. Grants, refusals, claims and waits need no other pass; loads, aborts and drains do."""
    if fleet.waiters:
        return _Pass(fleet).run()
    for runner in fleet.runners.values():
        if runner.state in LOADING:
            return _Pass(fleet).run()
    return ()  # nobody to decide for, and no load to give up


class _Pass:
    def __init__(self, fleet: FleetView) -> None:
        runners = fleet.runners.values()
        self.fleet = fleet
        self.policy = fleet.policy
        self.decisions: list[Decision] = []
        self.pools = Pools(fleet.devices, runners, fleet.model_limit)
        self.candidates = Candidates(runners, self.pools)
        self.free = dict(self.pools.now)
        self.rank: dict[str, int] = {}
        self.newest = {runner.key: runner for runner in runners if runner.state is not RECOVERING}
        self.waiting = fleet.waiting
        self.satisfied: dict[tuple[int, int], bool] = {}
        self.decided: set[int] = set()
        self.granted: dict[int, int] = {}
        """Leases given in this pass, by generation; `slots`: slots that are left."""
        self.slots: dict[int, int] = {}
        self.claimed: dict[int, int] = {}
        """By generation, the waiter that wants it gone."""
        self.claimants: set[int] = set()
        self.last_call: set[str] = set()
        """Models whose runner has a new claim: waiters that are here already may still join, within the budget."""
        self.reloading: set[int] = set()
        self.spared: set[int] = set()
        """Claimed on old figures: not stopped before there are fresh ones."""
        self.fronts: dict[str, int] = {}
        """The first blocked waiter of each model; the others will share its runner."""
        self.started: dict[str, StartLoad] = {}
        self.aborted: set[int] = set()
        self.heads: dict[str, int] = {}
        """The earliest waiter that keeps a place on a resource."""
        self.short: dict[int, tuple[str, int]] = {}
        """What each front lacks most at the moment: resource and amount."""
        self.locked: set[str] = set()
        self.overtakers: dict[str, list[int]] = {}

    def run(self) -> tuple[Decision, ...]:
        runners = self.fleet.runners
        for runner in runners.values():
            if runner.state in LOADING:
                self._keep_or_abort(runner)  # step A
        for runner in runners.values():
            if runner.state is READY and not runner.served and not runner.leases:
                heir = self._first_interested(runner)  # step B, R44
                if heir is not None:
                    self._grant(heir, runner, Because.FIRST_OF_LOAD)
        fronts, last_call, decided = self.fronts, self.last_call, self.decided
        for seq, waiter in self.fleet.waiters.items():
            front = fronts.get(waiter.key)
            if front is not None and waiter.behind == front and waiter.key not in last_call:
                continue  # it stays where it is: nearly everybody, when many wait
            if seq not in decided:
                self._consider(waiter, front)  # step C
        for gen, seq in self.claimed.items():
            if self._idle(gen) and gen not in self.spared:  # step D
                because = Because.RELOAD_FOR if gen in self.reloading else Because.EVICTED_FOR
                others = tuple(other for other in sorted(self.candidates.gens) if self._idle(other))
                self.decisions.append(Drain(gen, because, seq, *self.short.get(seq, ("", 0)), others))
        return tuple(self.decisions)

    # -- steps A and B ------------------------------------------------------------------------------------------

    def _first_interested(self, runner: Runner) -> Waiter | None:
        """The first waiter that this load is for (R04): same model, satisfied by its configuration, not shut out."""
        for waiter in self.fleet.queues.get(runner.key, {}).values():
            if runner.open_to(waiter.seq) and self._satisfies(runner.config, waiter):
                return waiter
        return None

    def _keep_or_abort(self, runner: Runner) -> None:
        finish = runner.finish_load and runner.closed_after is None and not self.fleet.closing
        if finish or self._first_interested(runner) is not None:
            self.locked |= runner.placement.load_lock
            return
        self.aborted.add(runner.gen)
        self.decisions.append(Abort(runner.gen))
        self.pools.aborted(runner)

    def _satisfies(self, config: LaunchConfig, q: Waiter) -> bool:
        """A runner launched with `config` may serve `q`. Wanted configurations are interned, so identity is a key."""
        known = (id(config), id(q.wanted))
        if known not in self.satisfied:
            self.satisfied[known] = difference(config, q.wanted) is None
        return self.satisfied[known]

    # -- step C -------------------------------------------------------------------------------------------------

    def _consider(self, q: Waiter, front: int | None) -> None:
        key, fleet = q.key, self.fleet
        runner = self.newest.get(key)
        if front is None:
            if fleet.closing:  # 0
                return self._refuse(q, Because.SHUTTING_DOWN)
            error = fleet.backed_off(key)
            if error is not None:
                return self._refuse(q, Because.CRASH_BACKOFF, error)
        if runner is not None and runner.state is READY and self._joins(q, runner):  # 1
            return None
        if front is not None:  # 2
            return self._queue(q, Because.BEHIND_OWN_MODEL, by=front)
        if self._waits_for_own_runner(q, runner):  # 3
            return None
        hopeless = fleet.never_fits(q)
        if hopeless is not None:  # 4
            needed, there = hopeless
            return self._refuse(q, Because.NEVER_FITS, f"{needed} {there}")
        retry = fleet.oom_retries.get(key)
        if retry is not None and retry.alone:  # 5
            return self._retry_alone(q)
        must_go = frozenset({runner.gen}) if runner is not None and runner.state is READY else NOTHING
        return self._place(q, must_go, exit_pending=runner is not None and not must_go)

    def _joins(self, q: Waiter, runner: Runner) -> bool:
        """Rule 1: a lease on the ready runner of its model, unless somebody earlier wants that gone."""
        gen = runner.gen
        claimed = gen in self.claimed
        if claimed and not (q.key in self.last_call and q.admitted):
            return False
        if not runner.open_to(q.seq) or not self._satisfies(runner.config, q):
            return False
        if claimed:
            if not self._within_budget(runner, q):
                return False
            self._grant(q, runner, Because.LAST_CALL)
        elif q.demand.slot and self._free_slots(runner) <= 0 and self._queue_full(q):
            self._refuse(q, Because.QUEUE_FULL)
        else:
            self._grant(q, runner, Because.READY)
        return True

    def _waits_for_own_runner(self, q: Waiter, runner: Runner | None) -> bool:
        """Rule 3: its model's runner is on the way, or on its way out; never a second one beside it (I05)."""
        start = self.started.get(q.key)
        if start is not None:
            if self._satisfies(start.config, q):
                self._queue(q, Because.LOADING)
            elif self._queue_full(q):
                self._refuse(q, Because.QUEUE_FULL)
            else:
                self.pools.going(start.placement.reservation)
                self._hold(q, Because.OTHER_CONFIG_LOADING)
            return True
        if runner is None or runner.gen in self.aborted:
            return False
        gen, by = runner.gen, self.claimed.get(runner.gen)
        if runner.loading:
            if runner.open_to(q.seq) and self._satisfies(runner.config, q):
                self._queue(q, Because.LOADING, by=gen)
            else:
                self._hold(q, Because.OTHER_CONFIG_LOADING, by=gen, leaving=runner)
        elif by is not None:
            self._hold(q, Because.RUNNER_CLAIMED, by=by)
        elif runner.state is DRAINING:
            self._hold(q, Because.PREDECESSOR_DRAINING, by=gen)
        elif runner.state is READY and not runner.open_to(q.seq):
            self._hold(q, Because.PREDECESSOR_DRAINING, by=gen, leaving=runner)
        elif runner.stuck:
            self._refuse(q, Because.PREDECESSOR_STUCK, f"pid {runner.pid}")
        else:
            return False
        return True

    def _place(self, q: Waiter, must_go: frozenset[int], *, exit_pending: bool) -> None:
        """Rules 6 to 10: start, take a turn, wait for bytes, or claim what is in the way."""
        pools, wished = self.pools, self.fleet.placements(q, self.pools.base)
        placements = self.candidates.within_reach(wished)
        if len(placements) > 1:
            placements = sorted(placements, key=self._by_rank)
        partial = explicit_partial(q.demand.model, q.wanted)
        if not placements or (partial and not self.heads.keys().isdisjoint(wished[0].load_lock)):
            first = min(wished, key=self._by_rank)
            return self._hold(q, Because.BEHIND, place=first, claim=must_go, must_go=must_go)
        if not must_go:
            coming = [placement for placement in placements if pools.fits_soon(placement.need)]
            fitting = [placement for placement in coming if pools.fits_now(placement.need)]
            if fitting and not exit_pending:  # 6
                return self._start_or_take_turn(q, fitting)
            if coming:  # 7
                # What is back stays kept for it: if it took what is coming first, it would wait for ever newer returns
                # while later loads use up the older ones (I21).
                self._keep(q, coming[0].need, pools.now, pools.soon)
                return self._wait(q, Because.MEMORY_RETURNING)
        kept = must_go.union(gen for gen in q.claim if gen in self.candidates) if q.claim else must_go
        found = self.candidates.cheapest(placements, must_go, idle_only=True)
        because = Because.EVICTING_IDLE  # 8
        if found is None:
            if self._queue_full(q):
                return self._refuse(q, Because.QUEUE_FULL)
            found = self.candidates.cheapest(placements, kept, idle_only=False)
            because = Because.EVICTING_BUSY  # 9
        if found is None:
            return self._hold(q, Because.BEHIND, place=placements[0], claim=must_go, must_go=must_go)  # 10
        placement, claim = found
        self._claim(q, claim, must_go)
        self._keep(q, placement.need, pools.later, pools.soon, pools.now)
        undecided = q.wait is not None and q.wait.because is Because.MEASURING
        if (undecided or not claim <= kept) and not self.fleet.facts_fresh:
            # Closed to others, but nobody is stopped for old figures; decided again when fresh ones arrive (R35).
            self.spared |= claim
            self._wait(q, Because.MEASURING)
        elif claim:
            self._wait(q, because, by=min(claim))
        else:
            self._wait(q, Because.MEMORY_DRAINING)

    def _by_rank(self, placement: Placement) -> int:
        """Single GPUs by what was free at the start of the pass, discrete ones before all others (R63)."""
        if not placement.gpus:
            return 0
        if not self.rank:
            ranked = sorted(self.fleet.devices, key=lambda gpu: (gpu.integrated, -self.free[gpu.id], gpu.id))
            self.rank.update((device.id, rank) for rank, device in enumerate(ranked))
        return self.rank[placement.gpus[0]]

    def _likeliest(self, q: Waiter) -> Placement:
        """The first placement that what comes back anyway will suffice for; if there is none, simply the first."""
        placements: Sequence[Placement] = self.fleet.placements(q, self.pools.base)
        if len(placements) > 1:
            placements = sorted(placements, key=self._by_rank)
        return next((one for one in placements if self.pools.fits_later(one.need)), placements[0])

    def _start_or_take_turn(self, q: Waiter, fitting: Sequence[Placement]) -> None:
        unlocked = next((placement for placement in fitting if self.locked.isdisjoint(placement.load_lock)), None)
        if unlocked is not None and self.fleet.facts_fresh:
            partial = unlocked.kind == "explicit_partial"
            others = tuple(other.gpus for other in fitting if other is not unlocked)
            return self._start(q, unlocked, Because.EXPLICIT_PARTIAL if partial else Because.FITS, others)
        if unlocked is None and self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        # No later load starts on these devices: loads on single GPUs cannot keep a wide one out (planner, row 13).
        placement = unlocked or fitting[0]
        self._keep(q, placement.need, self.pools.now)
        self.locked |= placement.load_lock
        # Old figures: decided again in the step in which fresh ones arrive, on what is kept meanwhile.
        self._wait(q, Because.DEVICE_LOADING if unlocked is None else Because.MEASURING)

    def _start(
        self, q: Waiter, placement: Placement, because: Because, alternatives: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        if placement.kind == "explicit_partial":
            now = self.pools.now
            reservation = {id_: min(amount, now.get(id_, 0)) for id_, amount in placement.reservation.items()}
            placement = replace(placement, reservation=reservation)
        free = tuple((id_, self.pools.now[id_]) for id_ in placement.reservation if id_ != MODELS)
        self.pools.draw(placement.reservation, self.pools.now)
        self.locked |= placement.load_lock
        start = StartLoad(q.seq, q.key, q.wanted, placement, because, free, alternatives)
        self.started[q.key] = start
        self.decisions.append(start)
        self._wait(q, Because.LOADING)

    def _retry_alone(self, q: Waiter) -> None:
        """Rule 5: after an out-of-memory load everything else goes first (R48); last call applies as always."""
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        alone = not self.started and all(runner.stuck for runner in self.fleet.runners.values())
        if alone and self.fleet.facts_fresh:
            return self._start(q, self._likeliest(q), Because.OOM_RETRY_ALONE)
        pools = self.pools
        self._claim(q, self.candidates.gens, NOTHING)
        self._keep(q, pools.base, pools.later, pools.soon, pools.now)
        for pool in (pools.later, pools.soon, pools.now):
            pool.update(dict.fromkeys(pool, 0))
        self.locked.update(device.id for device in self.fleet.devices)
        return self._wait(q, Because.MEASURING if alone else Because.EVICTING_ALL)

    # -- places, claims, outcomes ---------------------------------------------------------------------------------

    def _goes(self, runner: Runner) -> None:
        """What `runner` holds comes back with its last request: counted once, as nobody can claim it any more."""
        self.candidates.remove(runner.gen)
        self.pools.going(runner.held())

    def _claim(self, q: Waiter, gens: frozenset[int], must_go: frozenset[int]) -> None:
        self.claimants.add(q.seq)
        for gen in sorted(gens):
            self._goes(self.fleet.runners[gen])
            self.claimed[gen] = q.seq
            if gen in must_go:
                self.reloading.add(gen)
            if gen not in q.claim:
                self.last_call.add(self.fleet.runners[gen].key)
        if gens != q.claim:
            self.decisions.append(Claim(q.seq, gens))

    def _keep(self, q: Waiter, need: Mapping[str, int], *pools: dict[str, int]) -> None:
        """Become the front of its model and keep a place: these bytes are for nobody later."""
        self.fronts.setdefault(q.key, q.seq)
        self.short[q.seq] = self.pools.short(need)
        self.pools.draw(need, *pools)
        for id_, amount in need.items():
            if amount:
                self.heads.setdefault(id_, q.seq)

    def _hold(
        self,
        q: Waiter,
        because: Because,
        *,
        by: int | None = None,
        leaving: Runner | None = None,
        place: Placement | None = None,
        claim: frozenset[int] = NOTHING,
        must_go: frozenset[int] = NOTHING,
    ) -> None:
        """Keep a place on one placement, so that later loads leave these bytes alone (rows 11, 17)."""
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        if leaving is not None:
            self._goes(leaving)
        if claim:
            self._claim(q, claim, must_go)
        pools, place = self.pools, place or self._likeliest(q)
        self._keep(q, place.need, pools.later, pools.soon, pools.now)
        return self._wait(q, because, by=by)

    def _queue(self, q: Waiter, because: Because, *, by: int | None = None) -> None:
        """Wait without a place: the load of the own model, or its front, is already on the way."""
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        return self._wait(q, because, by=by)

    def _wait(self, q: Waiter, because: Because, *, by: int | None = None) -> None:
        if q.claim and q.seq not in self.claimants:
            self.decisions.append(Claim(q.seq, NOTHING))  # what it claimed before is open again
        if q.wait is None or q.wait.because is not because or q.wait.by != by:
            self.decisions.append(Wait(q.seq, because, by, *self.short.get(q.seq, ("", 0))))

    def _grant(self, q: Waiter, runner: Runner, because: Because) -> None:
        slot = q.demand.slot and self._free_slots(runner) > 0
        self.decided.add(q.seq)
        self.granted[runner.gen] = self.granted.get(runner.gen, 0) + 1
        self.candidates.granted(runner.gen)
        if slot:
            self.slots[runner.gen] -= 1
        if slot or not q.demand.slot:
            self.waiting -= 1
        overtook: tuple[int, ...] = ()
        if because is Because.LAST_CALL:
            overtook = (self.claimed[runner.gen],)
            for id_ in runner.reservation:
                self.overtakers.setdefault(id_, []).append(q.seq)
        self.decisions.append(Grant(q.seq, runner.gen, because, slot, overtook))

    def _idle(self, gen: int) -> bool:
        return not self.fleet.runners[gen].busy and gen not in self.granted

    def _free_slots(self, runner: Runner) -> int:
        if runner.gen not in self.slots:
            self.slots[runner.gen] = runner.free_slots
        return self.slots[runner.gen]

    def _within_budget(self, runner: Runner, q: Waiter) -> bool:
        """At most N later requests may join a runner that the oldest waiter on its resources wants gone (I23)."""
        for id_, amount in runner.reservation.items():
            head = self.heads.get(id_)
            if head is None or head > q.seq or not amount:
                continue
            known = self.fleet.overtakers.get(id_, ())
            count = len(known) - bisect_right(known, head)
            count += sum(seq > head for seq in self.overtakers.get(id_, ()))
            if count >= self.policy.overtakes:
                return False
        return True

    def _queue_full(self, q: Waiter) -> bool:
        return not q.admitted and self.waiting > self.policy.queue_bound

    def _refuse(self, q: Waiter, because: Because, facts: str = "") -> None:
        self.decided.add(q.seq)
        self.waiting -= 1
        self.decisions.append(Refuse(q.seq, because, facts))
