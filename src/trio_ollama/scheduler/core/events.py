"""What the scheduler did, as frozen values: one mechanism for log, introspection, metrics and the simulation's trace.

`level` is a `logging` level: one INFO line for each thing that costs a user seconds, with its reason; the rest DEBUG.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from .decisions import Because
from .values import MODELS

__all__ = [
    "DrainStarted",
    "Event",
    "LeaseGranted",
    "LeaseLost",
    "LeaseReleased",
    "LoadFailed",
    "LoadStarted",
    "Overbooked",
    "RequestLeft",
    "RequestRefused",
    "RequestWaits",
    "RetryPlanned",
    "RunnerGone",
    "RunnerLoaded",
    "RunnerStuck",
    "Underestimated",
    "human_bytes",
]

DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40


def human_bytes(amount: int) -> str:
    """One decimal GiB, MiB or KiB; below that plain bytes."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if amount >= size:
            tenths = amount * 10 // size
            return f"{tenths // 10}.{tenths % 10} {unit}"
    return f"{amount} B"


def _amount(resource: str, amount: int) -> str:
    return f"{amount} place among the loaded models" if resource == MODELS else f"{human_bytes(amount)} on {resource}"


@dataclass(frozen=True, slots=True)
class Event:
    level: ClassVar[int] = DEBUG
    at: int
    """Nanoseconds of the monotonic clock."""
    model: str

    def text(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class LoadStarted(Event):
    level: ClassVar[int] = INFO
    gen: int
    seq: int
    because: Because
    kind: str
    gpus: tuple[str, ...]
    reservation: tuple[tuple[str, int], ...]
    num_ctx: int
    num_batch: int
    parallel: int
    mmap: str
    """Why mapping is off, or empty."""
    free: tuple[tuple[str, int], ...] = ()
    """What was free there before."""
    alternatives: tuple[tuple[str, ...], ...] = ()
    """The GPUs of other placements that would have done."""
    notes: tuple[str, ...] = ()
    """What was asked for and cannot be had, for the log."""

    def text(self) -> str:
        free = dict(self.free)
        where = ", ".join(
            f"{human_bytes(amount)} on {id_}" + (f" ({human_bytes(free[id_])} free)" if id_ in free else "")
            for id_, amount in self.reservation
        )
        mmap = f", mapping off ({self.mmap})" if self.mmap else ""
        mmap += "".join(f"; {note}" for note in self.notes)
        return (
            f"loading {self.model} as generation {self.gen} ({self.because}): {where}; context {self.num_ctx} x "
            f"{self.parallel}, batch {self.num_batch}, placement {self.kind}{mmap}"
        )


@dataclass(frozen=True, slots=True)
class RunnerLoaded(Event):
    level: ClassVar[int] = INFO
    gen: int
    pid: int | None
    took: int
    total_bytes: int
    gpu_bytes: int
    loaded: int

    def text(self) -> str:
        return (
            f"{self.model} is ready as generation {self.gen}, pid {self.pid}, after {self.took / 1e9:.2f} s: "
            f"{human_bytes(self.total_bytes)}, of them {human_bytes(self.gpu_bytes)} on GPUs; {self.loaded} loaded"
        )


@dataclass(frozen=True, slots=True)
class Underestimated(Event):
    """A load took clearly more than was expected. Said once for each configuration: the next estimate knows."""

    level: ClassVar[int] = WARNING
    gen: int
    where: str
    expected: int
    measured: int
    num_ctx: int
    parallel: int
    batch: int
    learnt: bool
    """The next load of it is planned with what was measured."""

    def text(self) -> str:
        more = (self.measured - self.expected) * 100 // max(self.expected, 1)
        return (
            f"{self.model} takes {human_bytes(self.measured)} {self.where}, {more} % more than the "
            f"{human_bytes(self.expected)} that were expected (context {self.num_ctx} x {self.parallel}, "
            f"batch {self.batch})" + ("; the next load of it will be planned with that" if self.learnt else "")
        )


@dataclass(frozen=True, slots=True)
class LoadFailed(Event):
    level: ClassVar[int] = ERROR
    gen: int
    error: str
    waiters: int

    def text(self) -> str:
        return f"loading {self.model} failed, {self.waiters} requests get the error: {self.error}"


@dataclass(frozen=True, slots=True)
class RetryPlanned(Event):
    level: ClassVar[int] = WARNING
    num_ctx: int | None
    alone: bool
    error: str
    projector_on_cpu: bool = False

    def text(self) -> str:
        how = [f"with context {self.num_ctx}"] if self.num_ctx else []
        how += ["with images encoded on the CPU"] if self.projector_on_cpu else []
        how += ["after stopping everything else"] if self.alone else []
        return f"loading {self.model} ran out of memory, trying once more {' and '.join(how)}: {self.error}"


@dataclass(frozen=True, slots=True)
class LeaseGranted(Event):
    seq: int
    gen: int
    because: Because
    slot: bool
    waited: int
    overtook: tuple[int, ...]

    def text(self) -> str:
        waits = "" if self.slot else ", no slot yet"
        return f"request {self.seq} gets {self.model} ({self.because}) after {self.waited / 1e9:.3f} s{waits}"


@dataclass(frozen=True, slots=True)
class LeaseReleased(Event):
    seq: int
    gen: int
    leases: int

    def text(self) -> str:
        return f"request {self.seq} is done with {self.model}; {self.leases} others use it"


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    level: ClassVar[int] = WARNING
    seq: int
    gen: int
    error: str

    def text(self) -> str:
        return f"request {self.seq} loses {self.model}: {self.error}"


@dataclass(frozen=True, slots=True)
class RequestWaits(Event):
    seq: int
    because: Because
    by: int | None
    resource: str = ""
    bytes: int = 0
    """What is short."""

    def text(self) -> str:
        short = f", {_amount(self.resource, self.bytes)} short" if self.resource else ""
        by = f" ({self.by})" if self.by else ""
        return f"request {self.seq} waits for {self.model}: {self.because}{by}{short}"


@dataclass(frozen=True, slots=True)
class RequestLeft(Event):
    seq: int
    waited: int
    stage: str

    def text(self) -> str:
        return f"request {self.seq} for {self.model} left after waiting {self.waited / 1e9:.3f} s, {self.stage}"


@dataclass(frozen=True, slots=True)
class RequestRefused(Event):
    level: ClassVar[int] = WARNING
    seq: int
    because: Because
    facts: str

    def text(self) -> str:
        return f"request {self.seq} for {self.model} is refused: {self.because}" + (
            f" ({self.facts})" if self.facts else ""
        )


@dataclass(frozen=True, slots=True)
class DrainStarted(Event):
    level: ClassVar[int] = INFO
    gen: int
    because: Because
    seq: int | None
    """The waiter it goes for, if any."""
    leases: int
    resource: str = ""
    bytes: int = 0
    """What that waiter is short of."""
    alternatives: tuple[int, ...] = ()
    """Generations that could have gone instead, or as well."""

    def text(self) -> str:
        whom = f" for request {self.seq}" if self.seq is not None else ""
        short = f" ({_amount(self.resource, self.bytes)} short)" if self.resource else ""
        rest = f"; {self.leases} requests finish first" if self.leases else ""
        others = f"; not chosen: {', '.join(map(str, self.alternatives))}" if self.alternatives else ""
        return f"{self.model} (generation {self.gen}) goes{whom}: {self.because}{short}{rest}{others}"


@dataclass(frozen=True, slots=True)
class Overbooked(Event):
    """`model` is empty: it is about a device. Said once, until it is over."""

    level: ClassVar[int] = WARNING
    device: str
    reserved: int
    total: int

    def text(self) -> str:
        return (
            f"{human_bytes(self.reserved)} are reserved on {self.device}, which has {human_bytes(self.total)}: "
            "nothing counts as free there"
        )


@dataclass(frozen=True, slots=True)
class RunnerStuck(Event):
    level: ClassVar[int] = WARNING
    gen: int
    pid: int | None

    def text(self) -> str:
        return f"pid {self.pid} of {self.model} has not exited after SIGKILL; its memory stays reserved"


@dataclass(frozen=True, slots=True)
class RunnerGone(Event):
    level: ClassVar[int] = INFO
    gen: int
    how: str

    def text(self) -> str:
        return f"{self.model} (generation {self.gen}) is gone: {self.how}"
