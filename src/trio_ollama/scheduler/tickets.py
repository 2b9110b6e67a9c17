"""A request's place at the scheduler's counter: what it asked for, and what has become of it."""

from __future__ import annotations

import trio

from trio_ollama.runners.contract import OpenCall

from .core.values import Demand

__all__ = ["Ticket"]


class Ticket:
    """Filled by the scheduler in synchronous steps; `settled` is set once there is an outcome to return with."""

    def __init__(self, demand: Demand, asker: object = None) -> None:
        self.demand = demand
        self.asker = asker
        """Whose it is; handed back in the scheduler's views."""
        self.seq = 0
        """0: not announced to the fleet yet."""
        self.gen: int | None = None
        self.error: Exception | None = None
        """Why there is no lease, or why it was lost."""
        self.settled = trio.Event()
        self.slot: trio.Event | None = None
        """Pending wish for a slot on a lease that is held already."""
        self.calls: dict[OpenCall, None] = {}
        """Those that are open under the lease."""

    def fail(self, error: Exception, *, taken: bool = False) -> None:
        """There will be no lease, or there is none any more.

        `taken`: we took the runner away. It may be beyond answering, so nobody goes on waiting for it (R08, R81); a
        runner that died ends its connections itself, and they may know more about it.
        """
        self.error = self.error or error
        self.settled.set()
        if self.slot is not None:
            self.slot.set()
        if taken:
            for call in self.calls:
                call.abort(self.error)
