"""A lease: one request's right to use one runner generation, and its way to talk to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from trio_ollama.runners.contract import Call, LoadReport, OpenCall, Runner, RunnerDiedError

if TYPE_CHECKING:
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
        self._calls: list[OpenCall] = []
        """Those that the child may still work for."""
        self._served = False
        """The last call got its answer: the runner is in no crash loop (R78)."""
        self._released = False
        self.steps = 0
        """Odd while its runner is asked for something and has not answered; never twice the same (R81)."""

    @property
    def model(self) -> str:
        return self._ticket.demand.model.name

    @property
    def seq(self) -> int:
        """The request's number in the scheduler's log."""
        return self._ticket.seq

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
        """Why the runner is gone under this lease, or it was abandoned; None while it is good."""
        return self._ticket.error

    def abandon(self, error: Exception) -> None:
        """Nobody wants its answer any more: whoever waits for the runner, or asks it for more, gets `error`.

        It is still to be released.
        """
        self._ticket.fail(error, taken=True)

    def release(self) -> None:
        """Give the runner back. A slot whose call the child may still work for is confirmed by the supervisor."""
        self._released = True
        self._scheduler._release(self._ticket, self._supervisor, self._unsettled(), served=self._served)

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Call, None]:
        """`Runner.stream`, with the reason of a forced stop in place of the broken connection it causes."""
        self._check()
        opening = self._process.stream(path, body)
        # Before it is sent: a call that is cancelled while it waits for its head occupies a slot as well (R08).
        self._calls = [*self._unsettled(), opening]
        self._ticket.calls[opening] = None
        self.steps += 1
        try:
            async with opening as call:
                self.steps += 1
                watched = _Watched(call, self, self._supervisor)
                yield watched
                self._served = not watched.failed
        except RunnerDiedError as error:
            self._served = False
            raise self._reason(error) from error
        finally:
            self._ticket.calls.pop(opening, None)
            self.steps += self.steps % 2

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """A short call: POST, return the JSON answer. Its slot, if it needs one, is watched over like a stream's."""
        async with self.stream(path, body) as call:
            (answer,) = await call.receive()
        return answer

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Hold a slot for one of several calls under a lease that was taken without one (R10): FIFO with others."""
        self._check()
        await self._scheduler._acquire_slot(self._ticket)
        try:
            yield
        finally:
            self._scheduler._return_slot(self._ticket, self._supervisor, self._unsettled())

    def report_out_of_memory(self) -> None:
        """A call failed for want of memory: every runner drains (R51)."""
        self._scheduler.runtime_out_of_memory()

    def _check(self) -> None:
        if self._released:
            raise RuntimeError("the lease was released")
        if self._ticket.error is not None:
            raise self._ticket.error

    def _unsettled(self) -> list[OpenCall]:
        """Hand over the calls that the child may still work for; those that are done are forgotten."""
        calls, self._calls = self._calls, []
        return [call for call in calls if not call.settled.is_set()]

    def _reason(self, error: Exception) -> Exception:
        """The scheduler's own reason, if it ended the runner; a crash keeps the text the connection gave."""
        lost = self._ticket.error
        return lost if lost is not None and not isinstance(lost, RunnerDiedError) else error


class _Watched:
    """A call whose every batch of events counts as progress of its runner (R81)."""

    def __init__(self, call: Call, lease: Lease, supervisor: Supervisor) -> None:
        self._call = call
        self._lease = lease
        self._supervisor = supervisor
        self.failed = False
        """It ended with an error; whoever told its client of it need not have raised it again."""

    @property
    def settled(self) -> trio.Event:
        return self._call.settled

    async def receive(self) -> list[dict[str, Any]]:
        self._lease.steps += 1
        try:
            events = await self._call.receive()
        except Exception:
            self.failed = True
            raise
        self._lease.steps += 1
        self._supervisor.progress()
        return events
