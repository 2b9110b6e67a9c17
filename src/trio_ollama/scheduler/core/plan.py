"""The planner: who is granted a runner, which load starts, who must go, and who waits for what.

One pass looks at all waiters in arrival order. Whoever can use a loaded runner gets a lease at once; whoever fits gets
a load; whoever needs somebody else gone puts a claim on the smallest sufficient set of runners. A claimed runner takes
no later request and is stopped in the step in which it has no lease. Claims and places belong to their waiter and
vanish with it. A later load may only use bytes that no earlier waiter needs.

Pure: reads the fleet, changes nothing, returns decisions that their owner applies in the same synchronous step.
Rules 0 to 10, steps A to D, rows and faults are those of docs/scheduler.md.
"""

from __future__ import annotations

from .decisions import Because, Decision
from .ledger import Ledger
from .lifecycle import DRAINING, LOADING, READY, RECOVERING
from .records import NOTHING, Runner, Waiter
from .reload import difference
from .room import Room
from .values import LaunchConfig
from .view import FleetView

__all__ = ["plan"]


def plan(fleet: FleetView) -> tuple[Decision, ...]:
    """One pass. Grants, refusals, claims and waits need no other pass; loads, aborts and drains do."""
    if fleet.waiters:
        return _Pass(fleet).run()
    for runner in fleet.runners.values():
        if runner.state in LOADING:
            return _Pass(fleet).run()
    return ()  # nobody to decide for, and no load to give up


class _Pass:
    """Steps A to D, and of the rules those that ask for the runner of a waiter's own model: 0 to 4."""

    def __init__(self, fleet: FleetView) -> None:
        self._fleet = fleet
        self._ledger = Ledger(fleet)
        self._room = Room(fleet, self._ledger)
        self._newest = {runner.key: runner for runner in fleet.runners.values() if runner.state is not RECOVERING}
        self._closing = fleet.closing
        self._satisfied: dict[tuple[int, int], bool] = {}

    def run(self) -> tuple[Decision, ...]:
        fleet, ledger = self._fleet, self._ledger
        for runner in fleet.runners.values():
            if runner.state in LOADING:
                self._keep_or_abort(runner)  # step A
        for runner in fleet.runners.values():
            if runner.state is READY and not runner.served and not runner.leases:
                heir = self._first_interested(runner)  # step B, R44
                if heir is not None:
                    ledger.grant(heir, runner, Because.FIRST_OF_LOAD)
        fronts, last_call, decided = ledger.fronts, ledger.last_call, ledger.decided
        for seq, waiter in fleet.waiters.items():
            front = fronts.get(waiter.key)
            if front is not None and waiter.behind == front and waiter.key not in last_call:
                continue  # it stays where it is: nearly everybody, when many wait
            if seq not in decided:
                self._consider(waiter, front)  # step C
        ledger.stop_claimed()  # step D
        return tuple(ledger.decisions)

    # -- steps A and B ------------------------------------------------------------------------------------------

    def _first_interested(self, runner: Runner) -> Waiter | None:
        """The first waiter that this load is for (R04): same model, satisfied by its configuration, not shut out."""
        for waiter in self._fleet.queues.get(runner.key, {}).values():
            if runner.open_to(waiter.seq) and self._satisfies(runner.config, waiter):
                return waiter
        return None

    def _keep_or_abort(self, runner: Runner) -> None:
        finish = runner.finish_load and runner.closed_after is None and not self._closing
        if finish or self._first_interested(runner) is not None:
            self._ledger.locked |= runner.placement.load_lock
        else:
            self._ledger.abort(runner)

    def _satisfies(self, config: LaunchConfig, q: Waiter) -> bool:
        """A runner launched with `config` may serve `q`. Wanted configurations are interned, so identity is a key."""
        known = (id(config), id(q.wanted))
        if known not in self._satisfied:
            self._satisfied[known] = difference(config, q.wanted) is None
        return self._satisfied[known]

    # -- step C -------------------------------------------------------------------------------------------------

    def _consider(self, q: Waiter, front: int | None) -> None:
        key, fleet, ledger = q.key, self._fleet, self._ledger
        runner = self._newest.get(key)
        if front is None:
            if self._closing:  # 0
                return ledger.refuse(q, Because.SHUTTING_DOWN)
            error = fleet.backed_off(key)
            if error is not None:
                return ledger.refuse(q, Because.CRASH_BACKOFF, error)
        if runner is not None and runner.state is READY and self._joins(q, runner):  # 1
            return None
        if front is not None:  # 2
            return self._queue(q, Because.BEHIND_OWN_MODEL, by=front)
        if self._waits_for_own_runner(q, runner):  # 3
            return None
        hopeless = fleet.never_fits(q)
        if hopeless is not None:  # 4
            needed, there = hopeless
            return ledger.refuse(q, Because.NEVER_FITS, f"{needed} {there}")
        retry = fleet.oom_retries.get(key)
        if retry is not None and retry.alone:  # 5
            return self._room.retry_alone(q)
        must_go = frozenset({runner.gen}) if runner is not None and runner.state is READY else NOTHING
        return self._room.find(q, must_go, exit_pending=runner is not None and not must_go)  # 6 to 10

    def _joins(self, q: Waiter, runner: Runner) -> bool:
        """Rule 1: a lease on the ready runner of its model, unless somebody earlier wants that gone."""
        ledger = self._ledger
        claimed = runner.gen in ledger.claimed
        if claimed and not (q.key in ledger.last_call and q.admitted):
            return False
        if not runner.open_to(q.seq) or not self._satisfies(runner.config, q):
            return False
        if claimed:
            if not ledger.may_overtake(q, runner):
                return False
            ledger.grant(q, runner, Because.LAST_CALL)
        elif q.demand.slot and ledger.free_slots(runner) <= 0 and ledger.full(q):
            ledger.refuse(q, Because.QUEUE_FULL)
        else:
            ledger.grant(q, runner, Because.READY)
        return True

    def _waits_for_own_runner(self, q: Waiter, runner: Runner | None) -> bool:
        """Rule 3: its model's runner is on the way, or on its way out; never a second one beside it (I05)."""
        ledger = self._ledger
        start = ledger.started.get(q.key)
        if start is not None:
            if self._satisfies(start.config, q):
                self._queue(q, Because.LOADING)
            elif ledger.full(q):
                ledger.refuse(q, Because.QUEUE_FULL)
            else:
                ledger.pools.going(start.placement.reservation)
                self._room.hold(q, Because.OTHER_CONFIG_LOADING)
            return True
        if runner is None or runner.gen in ledger.aborted:
            return False
        gen, by = runner.gen, ledger.claimed.get(runner.gen)
        if runner.loading:
            if runner.open_to(q.seq) and self._satisfies(runner.config, q):
                self._queue(q, Because.LOADING, by=gen)
            else:
                self._room.hold(q, Because.OTHER_CONFIG_LOADING, by=gen, leaving=runner)
        elif by is not None:
            self._room.hold(q, Because.RUNNER_CLAIMED, by=by)
        elif runner.state is DRAINING:
            self._room.hold(q, Because.PREDECESSOR_DRAINING, by=gen)
        elif runner.state is READY and not runner.open_to(q.seq):
            self._room.hold(q, Because.PREDECESSOR_DRAINING, by=gen, leaving=runner)
        elif runner.stuck:
            ledger.refuse(q, Because.PREDECESSOR_STUCK, f"pid {runner.pid}")
        else:
            return False
        return True

    def _queue(self, q: Waiter, because: Because, *, by: int | None = None) -> None:
        """Wait without a place: the load of the own model, or its front, is already on the way."""
        if self._ledger.full(q):
            return self._ledger.refuse(q, Because.QUEUE_FULL)
        return self._ledger.wait(q, because, by=by)
