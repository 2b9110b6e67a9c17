"""What the scheduler shows of itself: immutable snapshots, taken without waiting for anything (I20)."""

from __future__ import annotations

from dataclasses import dataclass

from .core.lifecycle import State
from .core.records import Runner
from .core.values import FOREVER

__all__ = ["Holding", "RunnerView"]


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
