"""What a planner pass reads of the fleet, and whoever else looks at it to decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .overtaking import Overtakers
from .records import OomRetry, Runner, Waiter
from .values import DeviceFacts, Placement, Policy

__all__ = ["FleetView"]


class FleetView(Protocol):
    """At rest between two steps; nothing that is read here changes during a pass."""

    @property
    def policy(self) -> Policy: ...

    @property
    def closing(self) -> bool: ...

    @property
    def facts_fresh(self) -> bool:
        """False when the memory figures are older than the last change; no load is started on such."""
        ...

    @property
    def devices(self) -> Sequence[DeviceFacts]: ...

    @property
    def runners(self) -> Mapping[int, Runner]:
        """By generation, ascending; without those that are gone."""
        ...

    @property
    def waiters(self) -> Mapping[int, Waiter]:
        """By seq, ascending."""
        ...

    @property
    def queues(self) -> Mapping[str, dict[int, Waiter]]:
        """The same waiters by model key, then by seq."""
        ...

    @property
    def waiting(self) -> int:
        """Requests that wait at any stage: the waiters, and leases without a slot (I13)."""
        ...

    @property
    def overtakers(self) -> Overtakers: ...

    @property
    def oom_retries(self) -> Mapping[str, OomRetry]: ...

    @property
    def model_limit(self) -> int: ...

    def backed_off(self, key: str) -> str | None:
        """The last error of a model whose runner keeps crashing, while it is not tried again (R78)."""
        ...

    def never_fits(self, waiter: Waiter) -> tuple[int, int] | None:
        """(needed, available) bytes if the waiter's model cannot be loaded even on the empty machine (R42)."""
        ...

    def placements(self, waiter: Waiter, base: Mapping[str, int]) -> tuple[Placement, ...]: ...
