"""What the planner decides, and why: every decision carries its reason as an enum plus the facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .values import LaunchConfig, Placement

__all__ = ["Abort", "Because", "Claim", "Decision", "Drain", "Grant", "Refuse", "StartLoad", "Wait"]


class Because(StrEnum):
    # grants
    READY = "the runner is ready"
    FIRST_OF_LOAD = "first request of this load"
    LAST_CALL = "last call before the runner goes"
    # loads
    FITS = "it fits"
    EXPLICIT_PARTIAL = "partial offload was asked for"
    OOM_RETRY_ALONE = "retry after running out of memory, with nothing else loaded"
    # ends
    NO_WAITER_LEFT = "nobody waits for this load any more"
    EVICTED_FOR = "its memory is needed for another model"
    RELOAD_FOR = "the same model is wanted with other options"
    EXPIRED = "keep-alive is over"
    STOPPED = "it was asked to stop"
    DELETED = "the model was deleted"
    RUNTIME_OOM = "a runner ran out of memory"
    LOAD_FAILED = "the load failed"
    HUNG = "the runner no longer responds"
    FAULT = "an unexpected fault"
    FORCED = "it was stopped by force"
    SHUTDOWN = "the server is shutting down"
    # refusals
    QUEUE_FULL = "the queue is full"
    NEVER_FITS = "it cannot fit on this machine"
    CRASH_BACKOFF = "its runner crashed several times in a row"
    PREDECESSOR_STUCK = "its previous runner has not exited"
    SHUTTING_DOWN = "the server is shutting down, nothing new is accepted"
    # waits
    LOADING = "its runner is loading"
    OTHER_CONFIG_LOADING = "its model is loading with other options"
    BEHIND_OWN_MODEL = "behind an earlier request for the same model"
    RUNNER_CLAIMED = "an earlier request wants its runner gone"
    PREDECESSOR_DRAINING = "its previous runner is finishing its last requests"
    MEMORY_RETURNING = "memory is coming back from a runner that ended"
    DEVICE_LOADING = "another load runs on the device"
    MEASURING = "free memory is being measured"
    EVICTING_IDLE = "idle runners are being stopped for it"
    EVICTING_BUSY = "runners that must make room are still busy"
    MEMORY_DRAINING = "runners that make room are finishing their last requests"
    EVICTING_ALL = "everything is being stopped after it ran out of memory"
    BEHIND = "behind earlier requests that need the same memory"


@dataclass(frozen=True, slots=True)
class Grant:
    seq: int
    gen: int
    because: Because
    slot: bool
    """A slot is free for it at once."""
    overtook: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StartLoad:
    seq: int
    key: str
    config: LaunchConfig
    placement: Placement
    because: Because
    free: tuple[tuple[str, int], ...] = ()
    """What was free on the resources it needs."""
    alternatives: tuple[tuple[str, ...], ...] = ()
    """The GPUs of the other placements that would have done."""


@dataclass(frozen=True, slots=True)
class Abort:
    gen: int
    because: Because = Because.NO_WAITER_LEFT


@dataclass(frozen=True, slots=True)
class Drain:
    gen: int
    because: Because
    seq: int
    """For whom."""
    resource: str = ""
    """What is short for that request, and by how many bytes (runners, for the model limit)."""
    bytes: int = 0
    alternatives: tuple[int, ...] = ()
    """Generations that could have gone instead, or as well."""


@dataclass(frozen=True, slots=True)
class Claim:
    seq: int
    gens: frozenset[int]
    """All that the waiter claims now; replaces what it claimed before."""


@dataclass(frozen=True, slots=True)
class Refuse:
    seq: int
    because: Because
    facts: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    seq: int
    because: Because
    by: int | None = None
    """The seq or generation waited for."""
    resource: str = ""
    bytes: int = 0
    """What is still short on `resource`."""


Decision = Grant | StartLoad | Abort | Drain | Claim | Refuse | Wait
