"""A request's place at the scheduler's counter: what it asked for, and what has become of it."""

from __future__ import annotations

import trio

from .core.values import Demand

__all__ = ["Ticket"]


class Ticket:
    """Filled by the scheduler in synchronous steps; `settled` is set once there is an outcome to return with."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.seq = 0
        self.gen: int | None = None
        self.error: Exception | None = None
        """Why there is no lease, or why it was lost."""
        self.settled = trio.Event()
        self.slot: trio.Event | None = None
        """Pending wish for a slot on a lease that is held already."""

    def fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.settled.set()
        if self.slot is not None:
            self.slot.set()
