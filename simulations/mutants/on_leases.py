"""Faults in what a request holds: its lease, its calls, its place at the counter."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

LEASE: Final = "trio_ollama.scheduler.lease"
TICKETS: Final = "trio_ollama.scheduler.tickets"

MUTANTS: Final = (
    Mutant(
        name="call-noted-after-its-head",
        module=LEASE,
        old="""        self._calls = [*self._unsettled(), opening]
        self._ticket.calls[opening] = None
        self.steps += 1
        try:
            async with opening as call:
""",
        new="""        self._ticket.calls[opening] = None
        self.steps += 1
        try:
            async with opening as call:
                self._calls = [*self._unsettled(), opening]
""",
        mistake="a call that is cancelled in its prefill is not known to occupy a slot (R08)",
    ),
    Mutant(
        name="calls-forgotten",
        module=LEASE,
        old="return [call for call in calls if not call.settled.is_set()]",
        new="return []",
        mistake="a lease ends as if the child had let go of all its calls (R08)",
    ),
    Mutant(
        name="failures-count-as-served",
        module=LEASE,
        old="self._unsettled(), served=self._served)",
        new="self._unsettled(), served=True)",
        mistake="a runner that dies under every request is in no crash loop (R78)",
    ),
    Mutant(
        name="token-is-no-progress",
        module=LEASE,
        old="        self._supervisor.progress()\n",
        new="",
        mistake="a long answer in a drain is killed for a hang, though tokens keep coming (R81)",
    ),
    Mutant(
        name="call-known-after-its-head",
        module=LEASE,
        old="""        self._ticket.calls[opening] = None
        self.steps += 1
        try:
            async with opening as call:
""",
        new="""        self.steps += 1
        try:
            async with opening as call:
                self._ticket.calls[opening] = None
""",
        mistake="who waits for the head of an answer is not told that its runner was taken away (R81)",
    ),
    Mutant(
        name="slot-kept-after-its-call",
        module=LEASE,
        old="self._scheduler._return_slot(self._ticket, self._supervisor, self._unsettled())",
        new="pass",
        mistake="one input of a batch keeps the slot that the next one waits for (R10)",
    ),
    Mutant(
        name="call-on-a-lost-lease",
        module=LEASE,
        old="        if self._ticket.error is not None:\n            raise self._ticket.error",
        new="        pass",
        mistake="a lease whose runner is gone is used as if it were there",
        survives="whoever asks for a slot, or for an answer, is told once more",
    ),
    Mutant(
        name="batch-sleeps-through-the-loss",
        module=TICKETS,
        old="        if self.slot is not None:\n            self.slot.set()\n",
        new="",
        mistake="a batch that waits for a slot is not woken when its runner is gone",
    ),
    Mutant(
        name="calls-outlive-the-taking",
        module=TICKETS,
        old="            for call in self.calls:\n                call.abort(self.error)",
        new="            pass",
        mistake="calls that wait for a runner go on waiting when it is taken away (R81)",
    ),
)
