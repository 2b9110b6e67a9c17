"""The planner: who is granted a runner, which load starts, who must go, and who waits for what.

One pass looks at all waiters in arrival order. Whoever can use a loaded runner gets a lease at once; whoever fits gets
a load; whoever needs somebody else gone puts a claim on the smallest sufficient set of runners. A claimed runner takes
no later request and is stopped in the step in which it has no lease. Claims and places belong to their waiter and
vanish with it. A later load may only use bytes that no earlier waiter needs.

Pure: reads the fleet, changes nothing, returns decisions that their owner applies in the same synchronous step.
The rules are numbered as in the docs (planner rules 0 to 10, steps A to D).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from .decisions import Abort, Because, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from .lifecycle import State
from .placements import explicit_partial, never_fits
from .pools import Pools
from .records import OomRetry, Runner, Waiter
from .reload import difference
from .values import FOREVER, MODELS, DeviceFacts, LaunchConfig, Placement, Policy
from .victims import eviction_order

__all__ = ["FleetView", "plan"]


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

    def placements(self, waiter: Waiter, base: Mapping[str, int]) -> tuple[Placement, ...]: ...


def plan(fleet: FleetView) -> tuple[Decision, ...]:
    """One pass. Grants, refusals, claims and waits need no other pass; loads, aborts and drains do."""
    return _Pass(fleet).run()


class _Pass:
    def __init__(self, fleet: FleetView) -> None:
        self.fleet = fleet
        self.policy = fleet.policy
        self.decisions: list[Decision] = []
        self.pools = Pools(fleet.devices, fleet.runners.values(), fleet.model_limit)
        self.free_at_start = dict(self.pools.now)
        self.newest: dict[str, Runner] = {
            runner.key: runner for runner in fleet.runners.values() if runner.state is not State.RECOVERING
        }
        self.queues: dict[str, list[Waiter]] = {}
        for waiter in fleet.waiters.values():
            self.queues.setdefault(waiter.key, []).append(waiter)
        self.evictable = sorted(
            (runner for runner in fleet.runners.values() if runner.state is State.READY),
            key=lambda runner: eviction_order(runner.key, runner.keep_alive, runner.busy, runner.gen),
        )
        self.satisfied: dict[tuple[int, int], bool] = {}
        self.decided: set[int] = set()
        self.granted: Counter[int] = Counter()
        self.slots: dict[int, int] = {}
        self.claimed: dict[int, int] = {}
        self.newly_claimed: set[int] = set()
        self.reloading: set[int] = set()
        self.counted_later: set[int] = set()
        self.fronts: dict[str, int] = {}
        self.started: dict[str, StartLoad] = {}
        self.aborted: set[int] = set()
        self.heads: dict[str, int] = {}
        self.locked: set[str] = set()
        self.last_calls: dict[str, list[int]] = {}
        for runner in fleet.runners.values():
            if runner.loading:
                self.locked |= runner.placement.load_lock
        without_slot = sum(len(runner.slot_queue) for runner in fleet.runners.values())
        self.waiting = len(fleet.waiters) + without_slot

    def run(self) -> tuple[Decision, ...]:
        for runner in self.fleet.runners.values():
            if runner.loading:
                self._keep_or_abort(runner)  # step A
        for runner in self.fleet.runners.values():
            if runner.state is State.READY and not runner.served and not runner.leases:
                heir = self._first_interested(runner)  # step B, R44
                if heir is not None:
                    self._grant(heir, runner, Because.FIRST_OF_LOAD)
        for waiter in self.fleet.waiters.values():
            if waiter.seq not in self.decided:
                self._consider(waiter)  # step C
        for gen, seq in self.claimed.items():
            runner = self.fleet.runners[gen]
            if not runner.busy and not self.granted[gen]:  # step D
                because = Because.RELOAD_FOR if gen in self.reloading else Because.EVICTED_FOR
                self.decisions.append(Drain(gen, because, seq))
        return tuple(self.decisions)

    # -- steps A and B ------------------------------------------------------------------------------------------

    def _first_interested(self, runner: Runner) -> Waiter | None:
        """The first waiter that this load is for (R04): same model, satisfied by its configuration, not shut out."""
        for waiter in self.queues.get(runner.key, ()):
            if runner.open_to(waiter.seq) and self._satisfies(runner.config, waiter):
                return waiter
        return None

    def _keep_or_abort(self, runner: Runner) -> None:
        if self._first_interested(runner) is not None:
            return
        if not self.policy.finish_abandoned_load or runner.closed_after is not None:
            self.aborted.add(runner.gen)
            self.decisions.append(Abort(runner.gen))
            self.pools.returning(runner, self.pools.soon)
            # A model unit does not come back with the bytes: it is free in the step of the stop (I14).
            self.pools.soon[MODELS] -= 1
            self.pools.now[MODELS] += 1

    def _satisfies(self, config: LaunchConfig, q: Waiter) -> bool:
        """A runner launched with `config` may serve `q`. Wanted configurations are interned, so identity is a key."""
        known = (id(config), id(q.wanted))
        if known not in self.satisfied:
            self.satisfied[known] = difference(config, q.wanted) is None
        return self.satisfied[known]

    # -- step C -------------------------------------------------------------------------------------------------

    def _consider(self, q: Waiter) -> None:
        fleet, runner = self.fleet, self.newest.get(q.key)
        if fleet.closing:
            return self._refuse(q, Because.SHUTTING_DOWN)
        error = fleet.backed_off(q.key)
        if error is not None:
            return self._refuse(q, Because.CRASH_BACKOFF, error)
        if (  # 1
            runner is not None
            and runner.state is State.READY
            and runner.open_to(q.seq)
            and self._satisfies(runner.config, q)
        ):
            if runner.gen not in self.claimed:
                if self._free_slots(runner) <= 0 and q.demand.slot and self._queue_full(q):
                    return self._refuse(q, Because.QUEUE_FULL)
                return self._grant(q, runner, Because.READY)
            if runner.gen in self.newly_claimed and q.admitted and self._within_budget(runner, q):
                return self._grant(q, runner, Because.LAST_CALL)
        front = self.fronts.get(q.key)
        if front is not None:  # 2
            return self._queue(q, Because.BEHIND_OWN_MODEL, by=front)
        must_go: frozenset[int] = frozenset()
        if q.key in self.started:  # 3
            start = self.started[q.key]
            if self._satisfies(start.config, q):
                return self._queue(q, Because.LOADING)
            for id_, amount in start.placement.reservation.items():
                self.pools.later[id_] = self.pools.later.get(id_, 0) + amount
            return self._hold(q, Because.OTHER_CONFIG_LOADING)
        if runner is not None:
            if runner.loading and runner.gen not in self.aborted:
                if runner.open_to(q.seq) and self._satisfies(runner.config, q):
                    return self._queue(q, Because.LOADING, by=runner.gen)
                self._count_later(runner)
                return self._hold(q, Because.OTHER_CONFIG_LOADING, by=runner.gen)
            if runner.gen in self.claimed:
                return self._hold(q, Because.RUNNER_CLAIMED, by=self.claimed[runner.gen])
            if runner.state is State.DRAINING:
                return self._hold(q, Because.PREDECESSOR_DRAINING, by=runner.gen)
            if runner.state is State.READY and not runner.open_to(q.seq):
                self._count_later(runner)
                return self._hold(q, Because.PREDECESSOR_DRAINING, by=runner.gen)
            if runner.stuck:
                return self._refuse(q, Because.PREDECESSOR_STUCK, f"pid {runner.pid}")
            if runner.state is State.READY:
                must_go = frozenset({runner.gen})
        hopeless = never_fits(q.demand.model, q.wanted, fleet.devices, self.policy)
        if hopeless is not None:  # 4
            needed, there = hopeless
            return self._refuse(q, Because.NEVER_FITS, f"{needed} {there}")
        retry = fleet.oom_retries.get(q.key)
        if retry is not None and retry.alone:  # 5
            return self._retry_alone(q)
        exit_pending = runner is not None and not must_go
        self._place(q, fleet.placements(q, self.pools.base), must_go, exit_pending)

    def _place(self, q: Waiter, placements: tuple[Placement, ...], must_go: frozenset[int], exit_pending: bool) -> None:
        """Rules 6 to 10: start, take a turn, wait for bytes, or claim what is in the way."""
        pools = self.pools
        placements = tuple(sorted(placements, key=self._most_free_first))
        if explicit_partial(q.demand.model, q.wanted) and any(id_ in self.heads for id_ in placements[0].gpus):
            return self._hold(q, Because.BEHIND, placements=placements, claim=must_go)
        if not must_go:
            fitting = [placement for placement in placements if pools.fits_now(placement.need)]
            if fitting and not exit_pending:  # 6
                return self._start_or_take_turn(q, fitting)
            for placement in placements:  # 7
                if pools.fits_soon(placement.need):
                    self._front(q)
                    self._draw(q, placement.need, pools.soon, pools.now)
                    return self._settle(q, Because.MEMORY_RETURNING)
        idle = self._cheapest_claim(placements, must_go, idle_only=True)
        if idle is not None:  # 8
            placement, claim = idle
            return self._claim_and_wait(q, placement, claim, must_go, Because.EVICTING_IDLE)
        kept = must_go | frozenset(gen for gen in q.claim if self._still_claimable(gen))
        busy = self._cheapest_claim(placements, kept, idle_only=False)
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        if busy is not None:  # 9
            placement, claim = busy
            because = Because.EVICTING_BUSY if claim else Because.MEMORY_DRAINING
            return self._claim_and_wait(q, placement, claim, must_go, because)
        self._hold(q, Because.BEHIND, placements=placements, claim=must_go)  # 10

    def _start_or_take_turn(self, q: Waiter, fitting: Sequence[Placement]) -> None:
        for placement in fitting:
            if not placement.load_lock & self.locked:
                if not self.fleet.facts_fresh:
                    # Decided again in the step in which fresh figures arrive; its bytes and lock are kept meanwhile.
                    self._take_turn(q, placement)
                    return self._settle(q, Because.MEASURING)
                partial = placement.kind == "explicit_partial"
                return self._start(q, placement, Because.EXPLICIT_PARTIAL if partial else Because.FITS)
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        self._take_turn(q, fitting[0])
        self._settle(q, Because.DEVICE_LOADING)

    def _take_turn(self, q: Waiter, placement: Placement) -> None:
        """No later load starts on these devices: loads on single GPUs cannot keep a wide one out (planner, row 13)."""
        self._front(q)
        self._draw(q, placement.need, self.pools.now)
        self.locked |= placement.load_lock

    def _start(self, q: Waiter, placement: Placement, because: Because) -> None:
        reservation = {
            id_: min(amount, self.pools.now.get(id_, 0)) if placement.kind == "explicit_partial" else amount
            for id_, amount in placement.reservation.items()
        }
        placement = replace(placement, reservation=reservation)
        self.pools.draw(reservation, self.pools.now)
        self.locked |= placement.load_lock
        start = StartLoad(q.seq, q.key, q.wanted, placement, because)
        self.started[q.key] = start
        self.decisions.append(start)
        self._settle(q, Because.LOADING)

    def _retry_alone(self, q: Waiter) -> None:
        """Rule 5: after an out-of-memory load everything else goes first (R48); last call applies as always."""
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        others = [runner for runner in self.fleet.runners.values() if not runner.stuck]
        placement = self.fleet.placements(q, self.pools.base)[0]
        if not others and self.fleet.facts_fresh and not self.locked:
            return self._start(q, placement, Because.OOM_RETRY_ALONE)
        claim = frozenset(gen for gen in self.fleet.runners if self._still_claimable(gen))
        self._front(q)
        self._claim(q, claim, frozenset())
        self.locked |= {device.id for device in self.fleet.devices}
        for pool in (self.pools.later, self.pools.soon, self.pools.now):
            for id_ in pool:
                pool[id_] = 0
        for device in self.fleet.devices:
            self.heads.setdefault(device.id, q.seq)
        self.heads.setdefault(MODELS, q.seq)
        self._settle(q, Because.EVICTING_ALL if others else Because.MEASURING)
        return None

    # -- choosing victims -----------------------------------------------------------------------------------------

    def _still_claimable(self, gen: int) -> bool:
        runner = self.fleet.runners.get(gen)
        return runner is not None and runner.state is State.READY and gen not in self.claimed

    def _idle(self, runner: Runner) -> bool:
        return not runner.busy and not self.granted[runner.gen]

    def _cheapest_claim(
        self, placements: Sequence[Placement], forced: frozenset[int], *, idle_only: bool
    ) -> tuple[Placement, frozenset[int]] | None:
        """The placement whose claim costs least, with that claim; None if no set of victims suffices."""
        runners = self.fleet.runners
        if idle_only and not all(self._idle(runners[gen]) for gen in forced):
            return None
        best: tuple[tuple[int, int, int, int], Placement, frozenset[int]] | None = None
        for order, placement in enumerate(placements):
            chosen = self._victims(placement, forced, idle_only=idle_only)
            if chosen is None:
                continue
            busy = 0 if idle_only else sum(not self._idle(runner) for runner in chosen)
            pinned = sum(runner.keep_alive == FOREVER for runner in chosen)
            cost = (busy, pinned, len(chosen), order)
            if best is None or cost < best[0]:
                best = (cost, placement, forced | {runner.gen for runner in chosen})
            if cost[:3] == (0, 0, 0):
                break
        return None if best is None else (best[1], best[2])

    def _victims(self, placement: Placement, forced: frozenset[int], *, idle_only: bool) -> list[Runner] | None:
        """Upstream's order over runners that hold what is short; then each one not needed is left out (R42)."""
        runners = self.fleet.runners
        need = placement.need
        have = {
            id_: self.pools.total(id_, with_later=not idle_only)
            + sum(runners[gen].holds(id_) for gen in forced if gen not in self.counted_later)
            for id_ in need
        }
        chosen: list[Runner] = []
        for runner in self.evictable:
            short = [id_ for id_, amount in need.items() if have[id_] < amount]
            if not short:
                break
            if runner.gen in forced or not self._still_claimable(runner.gen) or runner.gen in self.counted_later:
                continue
            if idle_only and not self._idle(runner):
                continue
            if any(runner.holds(id_) for id_ in short):
                chosen.append(runner)
                for id_ in need:
                    have[id_] += runner.holds(id_)
        if any(have[id_] < amount for id_, amount in need.items()):
            return None
        for runner in reversed(tuple(chosen)):
            if all(have[id_] - runner.holds(id_) >= amount for id_, amount in need.items()):
                chosen.remove(runner)
                for id_ in need:
                    have[id_] -= runner.holds(id_)
        return chosen

    def _most_free_first(self, placement: Placement) -> tuple[bool, int, tuple[str, ...]]:
        """Single GPUs by what is free at the start of the pass; everything else keeps its place at the end."""
        if placement.kind != "single":
            return (True, 0, placement.gpus)
        gpu = placement.gpus[0]
        integrated = next(device.integrated for device in self.fleet.devices if device.id == gpu)
        return (integrated, -self.free_at_start[gpu], placement.gpus)

    # -- places, claims, outcomes ---------------------------------------------------------------------------------

    def _front(self, q: Waiter) -> None:
        self.fronts.setdefault(q.key, q.seq)

    def _draw(self, q: Waiter, need: Mapping[str, int], *pools: dict[str, int]) -> None:
        self.pools.draw(need, *pools)
        for id_, amount in need.items():
            if amount:
                self.heads.setdefault(id_, q.seq)

    def _count_later(self, runner: Runner) -> None:
        """Bytes of a runner that goes with its last request count as coming back, once (planner.md, fault c)."""
        if runner.gen not in self.counted_later and runner.gen not in self.claimed:
            self.counted_later.add(runner.gen)
            self.pools.returning(runner, self.pools.later)

    def _claim(self, q: Waiter, gens: frozenset[int], must_go: frozenset[int]) -> None:
        for gen in sorted(gens):
            runner = self.fleet.runners[gen]
            if gen not in self.counted_later:
                self.pools.returning(runner, self.pools.later)
            self.counted_later.add(gen)
            self.claimed[gen] = q.seq
            if gen in must_go:
                self.reloading.add(gen)
            if gen not in q.claim:
                self.newly_claimed.add(gen)
        if gens != q.claim:
            self.decisions.append(Claim(q.seq, gens))

    def _claim_and_wait(
        self, q: Waiter, placement: Placement, claim: frozenset[int], must_go: frozenset[int], because: Because
    ) -> None:
        self._front(q)
        self._claim(q, claim, must_go)
        pools = self.pools
        self._draw(q, placement.need, pools.later, pools.soon, pools.now)
        self.decisions.append(Wait(q.seq, because, by=min(claim) if claim else None))

    def _hold(
        self,
        q: Waiter,
        because: Because,
        *,
        by: int | None = None,
        placements: tuple[Placement, ...] | None = None,
        claim: frozenset[int] = frozenset(),
    ) -> None:
        """Keep a place on the first placement, so that later loads leave these bytes alone (rows 11, 17)."""
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        self._front(q)
        if claim or q.claim:
            self._claim(q, claim, claim)
        placements = placements or self.fleet.placements(q, self.pools.base)
        pools = self.pools
        self._draw(q, placements[0].need, pools.later, pools.soon, pools.now)
        self.decisions.append(Wait(q.seq, because, by=by))

    def _queue(self, q: Waiter, because: Because, *, by: int | None = None) -> None:
        """Wait without a place: the load of the own model, or its front, is already on the way."""
        if self._queue_full(q):
            return self._refuse(q, Because.QUEUE_FULL)
        self._settle(q, because, by=by)

    def _settle(self, q: Waiter, because: Because, *, by: int | None = None) -> None:
        """Wait without claiming anything; what was claimed before is open again."""
        if q.claim and not any(isinstance(d, Claim) and d.seq == q.seq for d in self.decisions):
            self.decisions.append(Claim(q.seq, frozenset()))
        self.decisions.append(Wait(q.seq, because, by=by))

    def _grant(self, q: Waiter, runner: Runner, because: Because) -> None:
        slot = q.demand.slot and self._free_slots(runner) > 0
        self.decided.add(q.seq)
        self.granted[runner.gen] += 1
        overtook: tuple[int, ...] = ()
        if slot:
            self.slots[runner.gen] = self._free_slots(runner) - 1
        if slot or not q.demand.slot:
            self.waiting -= 1
        if because is Because.LAST_CALL:
            overtook = (self.claimed[runner.gen],)
            for id_ in runner.reservation:
                self.last_calls.setdefault(id_, []).append(q.seq)
        self.decisions.append(Grant(q.seq, runner.gen, because, slot, overtook))

    def _free_slots(self, runner: Runner) -> int:
        """Slots nobody holds or waits for; a new lease goes behind those that wait."""
        if runner.gen not in self.slots:
            self.slots[runner.gen] = max(0, runner.slots - runner.held_slots - len(runner.slot_queue))
        return self.slots[runner.gen]

    def _within_budget(self, runner: Runner, q: Waiter) -> bool:
        """At most N later requests may join a runner that the oldest waiter on its resources wants gone (I23)."""
        for id_ in runner.reservation:
            head = self.heads.get(id_)
            if head is None or head > q.seq:
                continue
            known = self.fleet.overtakers.get(id_, ())
            count = len(known) - bisect_right(known, head)
            count += sum(seq > head for seq in self.last_calls.get(id_, ()))
            if count >= self.policy.overtakes:
                return False
        return True

    def _queue_full(self, q: Waiter) -> bool:
        return not q.admitted and self.waiting > self.policy.queue_bound

    def _refuse(self, q: Waiter, because: Because, facts: str = "") -> None:
        self.decided.add(q.seq)
        self.waiting -= 1
        self.decisions.append(Refuse(q.seq, because, facts))
