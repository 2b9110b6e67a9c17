"""A trace of requests: what was asked of a daemon, what became of it, and which loads there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from trio_ollama.scheduler import LoadOptions, ModelFacts, Policy

__all__ = ["SIZE", "Asked", "Header", "Load", "Seen", "Trace"]

SIZE: Final = 4 << 30
"""Bytes of a model that nobody has described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of a request: recorded, or forecast. Seconds; None for what it did not live to see."""

    model: str
    outcome: str
    queue: float | None = None
    """Of its wait for the runner, what was not that runner's load."""
    load: float | None = None
    first: float | None = None
    """From the arrival to the first token."""
    total: float = 0.0
    prompt_time: float | None = None
    """The runner's own figure."""
    gen: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: when it came, and what it wanted."""

    at: float
    model: str
    what: str = "generate"
    """`generate`, `embed` or `load`."""
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    output_tokens: int | None = None
    inputs: int = 1
    options: LoadOptions = field(default_factory=LoadOptions)
    keep_alive: float | None = None
    """Negative: for ever. None: it does not say."""
    left: float | None = None
    """So long after its arrival the client leaves, whatever is going on."""
    cut: bool = False
    """It left in the middle of its answer: that would have gone on."""
    seen: Seen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load that was recorded; `seconds` of time, bytes by device."""

    at: float
    model: str
    gen: int
    seconds: float
    reserved: Mapping[str, int]
    placement: str = "single"
    failed: bool = False

    @property
    def devices(self) -> frozenset[str]:
        """Where it computes: RAM counts only if weights are there."""
        gpus = frozenset(self.reserved) - {"cpu"}
        return gpus if gpus and self.placement in ("single", "group") else frozenset(self.reserved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The machine and the policy of the recorded daemon."""

    started: datetime | None = None
    devices: tuple[Mapping[str, Any], ...] = ()
    policy: Policy = field(default_factory=Policy)
    gpu_overhead: int = 0


@dataclass(slots=True, kw_only=True)
class Trace:
    header: Header | None = None
    """Of the last start in the file."""
    models: dict[str, ModelFacts] = field(default_factory=dict)
    requests: list[Asked] = field(default_factory=list)
    """By arrival."""
    loads: list[Load] = field(default_factory=list)
    unloads: list[tuple[str, str]] = field(default_factory=list)
    """Models, and why they went."""
    exit_times: list[float] = field(default_factory=list)
    """Seconds from the decision to stop an idle runner until it was gone."""
    left_out: int = 0
    """Lines that the recorder could not write."""

    @property
    def seen(self) -> list[Seen]:
        return [asked.seen for asked in self.requests if asked.seen is not None]

    def facts(self, model: str) -> ModelFacts:
        """What is known of a model; of one that nobody has described only that it has a usual size."""
        known = self.models.get(model)
        return known or ModelFacts(key=model, name=model, path=model, file_size=SIZE, layers=32)
