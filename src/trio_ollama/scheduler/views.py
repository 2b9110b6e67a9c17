"""What the scheduler shows of itself: immutable snapshots, taken without waiting for anything (I20)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .core.decisions import Because
from .core.fleet import Fleet
from .core.lifecycle import State
from .core.records import Lease, Runner, Waiter
from .core.stages import Stage, stage
from .core.values import FOREVER, Demand
from .tickets import Ticket

__all__ = ["Holding", "RequestView", "RunnerView"]

FOR_A_REQUEST = frozenset({Because.BEHIND_OWN_MODEL, Because.RUNNER_CLAIMED})
"""Reasons for waiting whose `by` is a request; that of the others is a runner's generation."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What is reserved for a runner on one device, in bytes, at whatever stage of its life it is."""

    gen: int
    name: str
    state: str
    pid: int | None
    reserved: int


@dataclass(frozen=True, slots=True)
class RunnerView:
    """A loaded runner. Sizes in bytes."""

    gen: int
    key: str
    name: str
    state: str
    pid: int | None
    context: int
    """Effective context per slot, in tokens."""
    total_bytes: int
    gpu_bytes: int
    expires_in: int
    """Nanoseconds until keep-alive ends, if nobody comes: negative while it is draining, `FOREVER` for never (R28)."""
    leases: int

    @classmethod
    def of(cls, runner: Runner, now: int) -> RunnerView:
        if runner.state is State.DRAINING:
            expires = -1
        elif runner.keep_alive == FOREVER:
            expires = FOREVER
        elif runner.deadline is not None:
            expires = max(0, runner.deadline - now)
        else:
            expires = max(0, runner.keep_alive)
        return cls(
            runner.gen,
            runner.key,
            runner.model.name,
            runner.state.value,
            runner.pid,
            runner.context,
            runner.total_bytes,
            runner.gpu_bytes,
            expires,
            len(runner.leases),
        )

    @property
    def draining(self) -> bool:
        return self.state == State.DRAINING.value


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request at the scheduler. Instants are nanoseconds of the monotonic clock, amounts bytes."""

    asker: object
    """What `Scheduler.acquire` was given with it."""
    seq: int
    """Its number in the log; 0: it has none yet."""
    demand: Demand
    stage: Stage
    because: Because | None = None
    """Why it waits; None for one that has a lease."""
    position: int | None = None
    """Its place among all that wait for a runner, or among those that wait for a slot of theirs; from 1."""
    by: int | None = None
    """Whom it waits for: a request's seq if `behind_a_request`, else a runner's generation."""
    of_model: str = ""
    """That runner's, or that of the one it has a lease on."""
    resource: str = ""
    short: int = 0
    """Where bytes are missing for it, and how many (one, of the loaded models)."""
    since: int = 0
    """Since when it waits for this reason, or is at this stage; 0: it has only just come."""
    gen: int | None = None
    """The runner it has a lease on."""

    @classmethod
    def of(cls, fleet: Fleet, ticket: Ticket, positions: Mapping[int, int]) -> RequestView | None:
        """`positions` are those of the waiters, by seq. None for a request that has neither place nor lease any more
        and is about to learn of it."""
        if not ticket.seq:
            # It waits for fresh figures, behind all others.
            return cls(ticket.asker, 0, ticket.demand, Stage.QUEUED, Because.MEASURING)
        waiter, runner = fleet.waiters.get(ticket.seq), fleet.runners.get(ticket.gen or 0)
        if waiter is not None:
            by = fleet.runners.get(waiter.wait.by or 0) if waiter.wait is not None else None
            view = cls._waiting(waiter, positions[ticket.seq], ticket.asker)
            return replace(view, of_model=by.model.name) if by is not None and not view.behind_a_request else view
        lease = runner.leases.get(ticket.seq) if runner is not None else None
        return cls._holding(runner, lease, ticket.asker) if runner is not None and lease is not None else None

    @classmethod
    def _waiting(cls, waiter: Waiter, position: int, asker: object) -> RequestView:
        view = cls(asker, waiter.seq, waiter.demand, stage(waiter), position=position, since=waiter.arrived)
        if (wait := waiter.wait) is None:
            return view
        return replace(
            view, because=wait.because, by=wait.by, resource=wait.resource, short=wait.bytes, since=waiter.since
        )

    @classmethod
    def _holding(cls, runner: Runner, lease: Lease, asker: object) -> RequestView:
        view = cls(
            asker, lease.seq, lease.demand, Stage.RUNNING, since=lease.since, gen=runner.gen, of_model=runner.model.name
        )
        if lease.seq not in runner.slot_queue:
            return view
        return replace(view, stage=Stage.WAITING_FOR_SLOT, position=runner.slot_queue.index(lease.seq) + 1)

    @property
    def behind_a_request(self) -> bool:
        return self.because in FOR_A_REQUEST
