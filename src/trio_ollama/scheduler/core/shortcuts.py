"""Events whose outcome is plain without a planner pass: most arrivals and departures under load.

Between events the fleet is at rest: another pass would change nothing. So a newcomer that can neither take anything
from nor give anything to the others gets the very decision a pass would make for it. Cost is independent of the number
of waiters.
"""

from __future__ import annotations

from .decisions import Because, Decision, Grant, Refuse, Wait
from .lifecycle import State
from .records import Runner, Waiter
from .reload import difference
from .view import FleetView

__all__ = ["arrival", "departure_changes_nothing"]


def arrival(fleet: FleetView, q: Waiter) -> Decision | None:
    """The decision for `q`, which has just come last in the queue; None if a pass is needed."""
    if fleet.closing or fleet.backed_off(q.key) is not None:
        return None
    runner = _newest(fleet, q.key)
    full = fleet.waiting > fleet.policy.queue_bound
    if runner is not None and runner.state is State.READY and runner.claimed_by is None and _serves(runner, q):
        slot = q.demand.slot and runner.free_slots > 0
        if q.demand.slot and not slot and full:
            return Refuse(q.seq, Because.QUEUE_FULL)
        return Grant(q.seq, runner.gen, Because.READY, slot)
    before = next((waiter for waiter in reversed(fleet.queues[q.key].values()) if waiter is not q), None)
    if before is None or before.wait is None:
        return None
    if before.wait.because is not Because.LOADING:
        wait = Wait(q.seq, Because.BEHIND_OWN_MODEL, by=before.behind or before.seq)
    elif runner is not None and runner.loading and _serves(runner, q):
        wait = Wait(q.seq, Because.LOADING, by=runner.gen)
    else:
        return None
    return Refuse(q.seq, Because.QUEUE_FULL) if full else wait


def departure_changes_nothing(fleet: FleetView, q: Waiter) -> bool:
    """`q` has left, and had neither claim nor place, nor was it the last one a load is for."""
    if q.claim or q.wait is None or q.wait.because not in (Because.BEHIND_OWN_MODEL, Because.LOADING):
        return False
    runner = _newest(fleet, q.key)
    if runner is None or not runner.loading:
        return True
    first = next(iter(fleet.queues.get(q.key, {}).values()), None)
    return first is not None and first.wait is not None and first.wait.because is Because.LOADING


def _newest(fleet: FleetView, key: str) -> Runner | None:
    found = None
    for runner in fleet.runners.values():
        if runner.key == key and runner.state is not State.RECOVERING:
            found = runner
    return found


def _serves(runner: Runner, q: Waiter) -> bool:
    return runner.open_to(q.seq) and difference(runner.config, q.wanted) is None
