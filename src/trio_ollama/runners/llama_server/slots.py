"""Which calls still occupy a slot of the child after they were given up.

The child's log says how many slots are busy, but not for whom. The end of a call's connection says for which call
the child's handler has ended, which then has told the slot to stop; the slot does so after the running batch. So a
call that was closed early is settled when its connection has ended and the busy slots can all be someone else's.
Without slot lines (another build) the end of the connection alone decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from trio_ollama.runners.llama_server.log import SlotEvent

__all__ = ["Occupant", "SlotLedger"]


class Occupant(Protocol):
    """A call that may hold a slot."""

    def settle(self) -> None: ...


class SlotLedger:
    """The calls of one child and its busy slots. Pure."""

    def __init__(self) -> None:
        self._busy: set[int] = set()
        self._open: dict[Occupant, None] = {}
        self._stopping: dict[Occupant, None] = {}

    def opened(self, call: Occupant) -> None:
        """The call is about to be sent."""
        self._open[call] = None

    def finished(self, call: Occupant) -> None:
        """The call came to its natural end, or never reached the child: it is settled at once."""
        self._open.pop(call, None)
        self._stopping.pop(call, None)
        call.settle()
        self._settle()

    def hung_up(self, call: Occupant) -> None:
        """The child has closed the connection of a call that was given up: it knows, and stops (R08)."""
        if call in self._open:
            del self._open[call]
            self._stopping[call] = None
        else:  # it never needed a slot
            call.settle()
        self._settle()

    def read(self, events: Iterable[SlotEvent]) -> None:
        """Take in what the log says."""
        for event in events:
            if event.busy:
                self._busy.add(event.slot)
            else:
                self._busy.discard(event.slot)
        self._settle()

    def child_gone(self) -> None:
        """Nothing works for anyone any more."""
        self._busy.clear()
        for call in [*self._open, *self._stopping]:
            call.settle()
        self._open.clear()
        self._stopping.clear()

    @property
    def unsettled(self) -> int:
        """Calls that are open or stopping."""
        return len(self._open) + len(self._stopping)

    def _settle(self) -> None:
        """At most as many stopping calls can hold a slot as there are busy slots that no open call needs."""
        held = max(0, len(self._busy) - len(self._open))
        for call in list(self._stopping)[: max(0, len(self._stopping) - held)]:
            del self._stopping[call]
            call.settle()
