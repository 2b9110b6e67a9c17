"""What is drawn: devices, runners and requests over time, whoever scheduled them. Plain data; instants in seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = ["Course", "End", "Holding", "Kind", "Mark", "Phase", "RequestLane", "RunnerLane", "Stage", "Story"]

What = TypeVar("What")


class Phase(StrEnum):
    """Of a runner."""

    LOADING = "loading"
    READY = "ready"
    CLAIMED = "claimed"
    """Somebody wants it gone; it takes no later request."""
    DRAINING = "draining"
    STOPPING = "stopping"
    RETURNING = "memory coming back"


class Stage(StrEnum):
    """Of a request."""

    QUEUED = "queued"
    EVICTING = "waiting for room"
    LOADING = "waiting for load"
    SLOT = "waiting for slot"
    PROMPT = "prompt"
    RUNNING = "running"

    @property
    def waits(self) -> bool:
        return self not in (Stage.PROMPT, Stage.RUNNING)


class End(StrEnum):
    """Of a request."""

    ANSWERED = "answered"
    CANCELLED = "cancelled"
    FAILED = "refused or lost"
    NEVER = "waits for ever"


class Kind(StrEnum):
    """What strikes at an instant."""

    LOAD = "load"
    EVICT = "evict"
    CRASH = "crash"
    FAILED_LOAD = "failed load"
    OUT_OF_MEMORY = "out of memory"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Mark:
    at: float
    kind: Kind
    text: str


@dataclass(slots=True)
class Course(Generic[What]):
    """What holds from when on, in order of time. None: there is nothing to tell."""

    changes: list[tuple[float, What | None]] = field(default_factory=list)

    def note(self, now: float, what: What | None) -> None:
        """`what` holds from now on; what held for no time at all is forgotten."""
        if self.changes and self.changes[-1][0] == now:
            self.changes.pop()
        if (self.changes[-1][1] if self.changes else None) != what:
            self.changes.append((now, what))

    def spans(self, until: float = math.inf) -> Iterator[tuple[float, float, What]]:
        """(since, until, what)"""
        ends = [*[since for since, _ in self.changes][1:], math.inf]
        for (since, what), end in zip(self.changes, ends, strict=False):
            if what is not None and since < until:
                yield since, min(end, until), what

    def at(self, now: float) -> What | None:
        return next((what for since, what in reversed(self.changes) if since <= now), None)


@dataclass(slots=True)
class Holding:
    """Bytes of a device in use. `model` is empty for other programs."""

    name: str
    model: str
    device: str
    amount: Course[int] = field(default_factory=Course)


@dataclass(slots=True)
class RunnerLane:
    name: str
    model: str
    phases: Course[Phase] = field(default_factory=Course)
    marks: list[Mark] = field(default_factory=list)
    text: str = ""
    """More about it."""


@dataclass(slots=True)
class RequestLane:
    name: str
    model: str
    arrived: float
    stages: Course[Stage] = field(default_factory=Course)
    end: End = End.NEVER
    ended: float = math.inf
    text: str = ""
    """How it ended, in words."""

    @property
    def waited(self) -> float:
        return sum(until - since for since, until, stage in self.stages.spans(self.ended) if stage.waits)


@dataclass(slots=True)
class Story:
    """One run on one scheduler."""

    heading: str
    remark: str
    """A sentence on what to look at."""
    broken: bool
    """The remark is about something that must not be."""
    devices: Mapping[str, int]
    """Total bytes by name."""
    until: float
    """When nothing of interest follows any more."""
    holdings: list[Holding] = field(default_factory=list)
    reserved: dict[str, Course[int]] = field(default_factory=dict)
    """What the scheduler counts as taken of a device, if it tells."""
    runners: list[RunnerLane] = field(default_factory=list)
    requests: list[RequestLane] = field(default_factory=list)
    faults: list[Mark] = field(default_factory=list)

    def instants(self) -> Iterator[float]:
        """When something happens."""
        for lane in self.runners:
            yield from (at for at, _ in lane.phases.changes)
            yield from (mark.at for mark in lane.marks)
        for request in self.requests:
            yield request.arrived
            yield from (at for at, _ in request.stages.changes)
            if math.isfinite(request.ended):
                yield request.ended
        for holding in self.holdings:
            yield from (at for at, _ in holding.amount.changes)
        yield from (mark.at for mark in self.faults)
