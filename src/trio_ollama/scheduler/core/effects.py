"""What the fleet asks of its shell: the only things a synchronous step cannot do itself."""

from __future__ import annotations

from dataclasses import dataclass

from .decisions import Because

__all__ = ["Effect", "Granted", "Lost", "Measure", "Rearm", "Refused", "SlotGranted", "Spawn", "Stop"]


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a supervisor for this generation."""

    gen: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Run the stop sequence for this generation; `kill`: without grace."""

    gen: int
    kill: bool = False


@dataclass(frozen=True, slots=True)
class Rearm:
    """The generation's keep-alive deadline, its draining, or somebody's claim on it changed."""

    gen: int


@dataclass(frozen=True, slots=True)
class Granted:
    """The request holds a lease now; its slot comes with `SlotGranted`."""

    seq: int
    gen: int


@dataclass(frozen=True, slots=True)
class SlotGranted:
    seq: int


@dataclass(frozen=True, slots=True)
class Refused:
    seq: int
    because: Because
    facts: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease's runner is gone, or is being killed."""

    seq: int
    because: Because | None
    error: str


@dataclass(frozen=True, slots=True)
class Measure:
    """Fresh memory figures are wanted; answer with `Fleet.report`."""


Effect = Spawn | Stop | Rearm | Granted | SlotGranted | Refused | Lost | Measure
