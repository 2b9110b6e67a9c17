"""What is shown of a model that somebody asks about: where it would go, what it would take, who would have to leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .expected import Expected
from .records import Runner
from .values import LaunchConfig, ModelFacts, Placement

__all__ = ["ContextFit", "DeviceFit", "Fit", "Part", "Verdict", "Victim"]


class Verdict(StrEnum):
    LOADED = "loaded"
    FITS = "fits"
    RETURNING = "memory_returning"
    """There is room as soon as runners that are ending have ended."""
    EVICTS = "evicts"
    EVICTS_BUSY = "evicts_busy"
    BLOCKED = "blocked"
    """What is in the way cannot be stopped at the moment: it loads, or it does not end."""
    NEVER = "never_fits"


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one purpose, as estimated."""

    name: str
    size: int
    on_gpus: bool


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """A device in this picture. Bytes."""

    id: str
    library: str
    total: int
    free: int
    """As the system says."""
    reserved: int
    """For our runners."""
    usable: int
    """Free for another load."""
    returning: int
    """Comes back from those that would go, or are going."""
    needed: int
    """Must be there before the load begins, with headroom."""
    held: int
    """Would be held for the runner."""
    left: int
    """Usable then."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A runner that would be stopped first."""

    gen: int
    name: str
    busy: bool
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ContextFit:
    """The same model with another context, with nothing else loaded."""

    num_ctx: int
    expected: int
    formula: int
    kind: str
    gpus: tuple[str, ...]
    full: bool
    """All layers on GPUs, or, where there is none to go to, all of it in the RAM that is there."""
    now: bool
    """Also beside what is loaded now."""


@dataclass(frozen=True, slots=True)
class Fit:
    model: ModelFacts
    verdict: Verdict
    facts: tuple[int, int]
    """For `NEVER`: bytes needed, and bytes there are; else zeros."""
    config: LaunchConfig
    """As it would be launched, or is."""
    mmap: str
    """Why mapping would be off, or empty."""
    placement: Placement
    parts: tuple[Part, ...]
    expected: Expected
    formula: int
    """Upstream's prediction."""
    runner: Runner | None
    """Of the same model, if there is one."""
    devices: tuple[DeviceFit, ...]
    victims: tuple[Victim, ...]
    contexts: tuple[ContextFit, ...]
    largest: int
    """Context that fits in full on the machine as it is without our runners; 0 if none does."""
