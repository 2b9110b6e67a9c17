"""Room for a load: the rules 5 to 10, for a waiter whose model has no runner that it could use or wait for."""

from __future__ import annotations

from collections.abc import Sequence

from .decisions import Because
from .ledger import Ledger
from .placements import explicit_partial
from .ranking import Ranking
from .records import NOTHING, Runner, Waiter
from .values import Placement
from .view import FleetView

__all__ = ["Room"]


class Room:
    def __init__(self, fleet: FleetView, ledger: Ledger) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._ranking = Ranking(fleet.devices, ledger.pools.now)

    def find(self, q: Waiter, must_go: frozenset[int], *, exit_pending: bool) -> None:
        """Rules 6 to 10: start, take a turn, wait for bytes, or claim what is in the way.

        `must_go`: the runner that a load for `q` replaces; `exit_pending`: its last one has not exited yet (I05).
        """
        ledger, pools = self._ledger, self._ledger.pools
        wished = self._fleet.placements(q, pools.base)
        placements = self._ranking.best_first(ledger.candidates.within_reach(wished))
        partial = explicit_partial(q.demand.model, q.wanted)
        if not placements or (partial and not ledger.heads.keys().isdisjoint(wished[0].load_lock)):
            return self._stand_behind(q, self._ranking.best_first(wished)[0], must_go)
        if not must_go:
            coming = [placement for placement in placements if pools.fits_soon(placement.need)]
            fitting = [placement for placement in coming if pools.fits_now(placement.need)]
            if fitting and not exit_pending:  # 6
                return self._start_or_take_turn(q, fitting)
            if coming:  # 7
                # What is back stays kept for it: if it took what is coming first, it would wait for ever newer returns
                # while later loads use up the older ones (I21).
                ledger.keep(q, coming[0].need, pools.now, pools.soon)
                return ledger.wait(q, Because.MEMORY_RETURNING)
        return self._evict(q, placements, must_go)

    def retry_alone(self, q: Waiter) -> None:
        """Rule 5: after an out-of-memory load everything else goes first (R48); last call applies as always."""
        ledger, fleet = self._ledger, self._fleet
        if ledger.full(q):
            return ledger.refuse(q, Because.QUEUE_FULL)
        alone = not ledger.started and all(runner.stuck for runner in fleet.runners.values())
        if alone and fleet.facts_fresh:
            return ledger.load(q, self._likeliest(q), Because.OOM_RETRY_ALONE)
        pools = ledger.pools
        ledger.claim(q, ledger.candidates.gens, NOTHING)
        ledger.keep(q, pools.base)
        for pool in (pools.later, pools.soon, pools.now):
            pool.update(dict.fromkeys(pool, 0))
        ledger.locked.update(device.id for device in fleet.devices)
        return ledger.wait(q, Because.MEASURING if alone else Because.EVICTING_ALL)

    def hold(self, q: Waiter, because: Because, *, by: int | None = None, leaving: Runner | None = None) -> None:
        """Wait for something else than room, but keep a place meanwhile, as later loads would take it (row 17)."""
        ledger = self._ledger
        if ledger.full(q):
            return ledger.refuse(q, Because.QUEUE_FULL)
        if leaving is not None:
            ledger.goes(leaving)
        ledger.keep(q, self._likeliest(q).need)
        return ledger.wait(q, because, by=by)

    def _start_or_take_turn(self, q: Waiter, fitting: Sequence[Placement]) -> None:
        """Rule 6."""
        ledger = self._ledger
        unlocked = next((placement for placement in fitting if ledger.locked.isdisjoint(placement.load_lock)), None)
        if unlocked is not None and self._fleet.facts_fresh:
            partial = unlocked.kind == "explicit_partial"
            others = tuple(other.gpus for other in fitting if other is not unlocked)
            return ledger.load(q, unlocked, Because.EXPLICIT_PARTIAL if partial else Because.FITS, others)
        if unlocked is None and ledger.full(q):
            return ledger.refuse(q, Because.QUEUE_FULL)
        # No later load starts on these devices: loads on single GPUs cannot keep a wide one out (planner, row 13).
        placement = unlocked or fitting[0]
        ledger.keep(q, placement.need, ledger.pools.now)
        ledger.locked |= placement.load_lock
        # Old figures: decided again in the step in which fresh ones arrive, on what is kept meanwhile.
        return ledger.wait(q, Because.DEVICE_LOADING if unlocked is None else Because.MEASURING)

    def _evict(self, q: Waiter, placements: Sequence[Placement], must_go: frozenset[int]) -> None:
        """Rules 8 to 10."""
        ledger, candidates = self._ledger, self._ledger.candidates
        kept = must_go.union(gen for gen in q.claim if gen in candidates) if q.claim else must_go
        found = candidates.cheapest(placements, must_go, idle_only=True)
        because = Because.EVICTING_IDLE  # 8
        if found is None:
            if ledger.full(q):
                return ledger.refuse(q, Because.QUEUE_FULL)
            found = candidates.cheapest(placements, kept, idle_only=False)
            because = Because.EVICTING_BUSY  # 9
        if found is None:
            return self._stand_behind(q, placements[0], must_go)  # 10
        placement, claim = found
        ledger.claim(q, claim, must_go)
        ledger.keep(q, placement.need)
        undecided = q.wait is not None and q.wait.because is Because.MEASURING
        if (undecided or not claim <= kept) and not self._fleet.facts_fresh:
            # Closed to others, but nobody is stopped for old figures; decided again when fresh ones arrive (R35).
            ledger.spared |= claim
            return ledger.wait(q, Because.MEASURING)
        if claim:
            return ledger.wait(q, because, by=min(claim))
        return ledger.wait(q, Because.MEMORY_DRAINING)

    def _stand_behind(self, q: Waiter, place: Placement, must_go: frozenset[int]) -> None:
        """Rule 10: nothing it could claim would do; it keeps a place on one placement all the same (row 11)."""
        ledger = self._ledger
        if ledger.full(q):
            return ledger.refuse(q, Because.QUEUE_FULL)
        if must_go:
            ledger.claim(q, must_go, must_go)
        ledger.keep(q, place.need)
        return ledger.wait(q, Because.BEHIND)

    def _likeliest(self, q: Waiter) -> Placement:
        """The first placement that what comes back anyway will suffice for; if there is none, simply the first."""
        pools = self._ledger.pools
        placements = self._ranking.best_first(self._fleet.placements(q, pools.base))
        return next((one for one in placements if pools.fits_later(one.need)), placements[0])
