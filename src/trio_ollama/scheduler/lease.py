"""A lease: one request's right to use one runner generation, and its way to talk to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trio_ollama.runners.contract import Call, LoadReport, Runner, RunnerDiedError

if TYPE_CHECKING:
    import trio

    from .scheduler import Scheduler
    from .supervisor import Supervisor
    from .tickets import Ticket

__all__ = ["Lease"]


class Lease:
    """Valid until `release`, which is synchronous, idempotent, and bound to the generation (I03).

    Register `release` on the request's exit stack right after `Scheduler.acquire` has returned; calls opened later
    are closed before it.
    """

    def __init__(self, scheduler: Scheduler, ticket: Ticket, supervisor: Supervisor, process: Runner) -> None:
        self._scheduler = scheduler
        self._ticket = ticket
        self._supervisor = supervisor
        self._process = process
        self._call: Call | None = None
        self._served = False

    @property
    def model(self) -> str:
        return self._ticket.demand.model.name

    @property
    def generation(self) -> int:
        return self._supervisor.gen

    @property
    def context(self) -> int:
        """Effective context per slot, in tokens."""
        return self._supervisor.record.context

    @property
    def slots(self) -> int:
        return self._supervisor.record.slots

    @property
    def batch(self) -> int:
        """Tokens per batch the runner was launched with."""
        return self._supervisor.record.config.num_batch

    @property
    def load_report(self) -> LoadReport | None:
        report = self._supervisor.record.report
        return report if isinstance(report, LoadReport) else None

    @property
    def lost(self) -> Exception | None:
        """Why the runner is gone under this lease, or None."""
        return self._ticket.error

    def release(self) -> None:
        """Give the runner back. A slot whose call the child may still work for is confirmed by the supervisor."""
        pending = self._call if self._call is not None and not self._call.settled.is_set() else None
        self._call = None
        self._scheduler._release(self._ticket, self._supervisor, pending, served=self._served)

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Call, None]:
        """`Runner.stream`, with the reason of a forced stop in place of the broken connection it causes."""
        self._check()
        try:
            async with self._process.stream(path, body) as call:
                self._call = call
                yield _Watched(call, self._supervisor)
                self._served = True
        except RunnerDiedError as error:
            raise self._reason(error) from error

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """`Runner.ask`, likewise."""
        self._check()
        try:
            answer = await self._process.ask(path, body)
        except RunnerDiedError as error:
            raise self._reason(error) from error
        self._supervisor.progress()
        self._served = True
        return answer

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Hold a slot for one of several calls under a lease that was taken without one (R10): FIFO with others."""
        await self._scheduler._acquire_slot(self._ticket)
        try:
            yield
        finally:
            pending = self._call if self._call is not None and not self._call.settled.is_set() else None
            self._call = None
            self._scheduler._return_slot(self._ticket, self._supervisor, pending)

    def report_out_of_memory(self) -> None:
        """A call failed for want of memory: every runner drains (R51)."""
        self._scheduler.runtime_out_of_memory()

    def _check(self) -> None:
        if self._ticket.error is not None:
            raise self._ticket.error

    def _reason(self, error: Exception) -> Exception:
        """The scheduler's own reason, if it ended the runner; a crash keeps the text the connection gave."""
        lost = self._ticket.error
        return lost if lost is not None and not isinstance(lost, RunnerDiedError) else error


class _Watched:
    """A call whose every batch of events counts as progress of its runner (R81)."""

    def __init__(self, call: Call, supervisor: Supervisor) -> None:
        self._call = call
        self._supervisor = supervisor

    @property
    def settled(self) -> trio.Event:
        return self._call.settled

    async def receive(self) -> list[dict[str, Any]]:
        events = await self._call.receive()
        self._supervisor.progress()
        return events
