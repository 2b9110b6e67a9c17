"""The one streaming path: a runner's answer as batches of events, whatever was asked and whoever encodes it.

A request becomes a `Generation` in two steps: `acquire` gets the lease, `Generation.open` starts the runner's work and
waits for the first event, so that everything that fails until then has a real status. From there on `receive` never
raises: what fails is a `Failure`, and every answer ends with exactly one `Done` or `Failure` (R75).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import trio

from trio_ollama.runners.contract import Call, RunnerError, RunnerRefusedError
from trio_ollama.scheduler import Demand, Lease
from trio_ollama.server.errors import MID_STREAM, ApiError, describe_mid_stream, worth_retrying
from trio_ollama.server.inference.events import Done, Event, Failure, Token
from trio_ollama.server.inference.translate import Translator
from trio_ollama.server.inference.watch import Watch
from trio_ollama.server.live import current
from trio_ollama.server.services import Services

__all__ = ["Clock", "Generation", "acquire", "overflows", "report_out_of_memory"]

logger = logging.getLogger(__name__)


CONTEXT_SECONDS: Final = 5.0
"""The end of an answer waits no longer for tokens that hardly any client wants."""

Remember: TypeAlias = Callable[[str], Awaitable[tuple[int, ...]]]
"""Given an answer's text, the tokens that a later request may go on from."""


class Clock:
    """When a request arrived, and when it got its runner; nanoseconds."""

    def __init__(self) -> None:
        self.arrived = trio.current_time()
        self.load_ns = 0
        self.watch = Watch()
        self.live = current()
        """The request, as others see it."""
        self.remember: Remember | None = None
        """Set before an answer begins to have its `Done` tell a context."""

    def loaded(self) -> None:
        """The runner was handed over just now."""
        self.load_ns = self.total_ns

    @property
    def total_ns(self) -> int:
        return int((trio.current_time() - self.arrived) * 1e9)


async def acquire(services: Services, stack: AsyncExitStack, demand: Demand, clock: Clock) -> Lease:
    """A lease that ends with the request at the latest. Raises `SchedulingError` and `LoadFailedError`."""
    live = clock.live
    if services.recorder is not None:
        clock.watch = live.watch = services.recorder.watch(stack, demand, clock.arrived)
    live.demand = demand
    try:
        lease = await services.scheduler.acquire(demand, live)
    except Exception as error:
        clock.watch.failed(error)
        raise
    stack.callback(lease.release)  # no checkpoint in between: it cannot get lost (R76)
    live.lease = lease
    logger.debug("%s is request %d at the scheduler", live.id, lease.seq)
    clock.loaded()
    clock.watch.granted(lease)
    return lease


def overflows(error: RunnerRefusedError) -> bool:
    """True if the runner refused a prompt because it is longer than its context."""
    return error.kind == "exceed_context_size_error" or "exceeds the available context" in str(error)


class Generation:
    """A running answer. Holds the lease and the call, and lets both go as soon as the runner is done.

    Also when the client reads slowly: its last chunk waits in the socket, the slot does not wait for it.
    """

    def __init__(self, lease: Lease, translator: Translator, clock: Clock, calls: AsyncExitStack, call: Call) -> None:
        self._lease = lease
        self._translator = translator
        self._clock = clock
        self._calls = calls
        self._call = call
        self._first: list[Event] = []
        self._texts: list[str] = []

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        lease: Lease,
        clock: Clock,
        path: str,
        body: Mapping[str, Any],
        translator: Translator,
    ) -> Generation:
        """Start the work and wait for its first event.

        Raises what the runner answers, and `ApiError` if the answer is a failure from the start. `RunnerRefusedError`
        is raised before anything was begun: the caller may try again with another body.
        """
        calls = await stack.enter_async_context(AsyncExitStack())
        # R08: always a stream, always with progress: only then does the runner notice that we have left.
        body = {**body, "stream": True, "return_progress": True, "cache_prompt": True}
        try:
            call = await calls.enter_async_context(lease.stream(path, body))
        except RunnerError as error:
            report_out_of_memory(lease, error)
            clock.watch.failed(error)
            raise
        generation = cls(lease, translator, clock, calls, call)
        clock.live.answer = generation
        first = await generation.receive()
        if isinstance(first[0], Failure):
            raise ApiError(first[0].status, first[0].text, retry=first[0].retry)
        generation._first = first
        return generation

    @property
    def prompt_tokens(self) -> int:
        """As far as the runner has told; 0 before that."""
        return self._translator.prompt_tokens

    @property
    def prompt_done(self) -> int:
        """Tokens of the prompt that the runner has read."""
        return self._translator.prompt_done

    @property
    def tokens(self) -> int:
        """Of the answer, so far."""
        return self._translator.tokens

    async def receive(self) -> list[Event]:
        """All events of the runner's next read; empty after the last. Waits as long as the runner takes."""
        if self._first:
            first, self._first = self._first, []
            return first
        events: list[Event] = []
        while not self._translator.finished and not events:
            await self._read(events)
        if self._clock.remember is not None:
            self._texts += [event.text for event in events if isinstance(event, Token)]
        if self._translator.finished and events:
            await self._finish(events[-1])
        return events

    async def collect(self) -> tuple[list[Event], Done]:
        """The whole answer at once. Raises `ApiError` if it ends with a failure."""
        events: list[Event] = []
        while batch := await self.receive():
            events += batch
        last = events.pop()
        if isinstance(last, Failure):
            raise ApiError(last.status, last.text, retry=last.retry)
        assert isinstance(last, Done)
        return events, last

    async def _read(self, events: list[Event]) -> None:
        try:
            batch = await self._call.receive()
            if not batch:
                # R75: the runner's stream ended in good order, but without its last event.
                self._fail(events, Failure(500, MID_STREAM + "unexpected EOF"))
            for raw in batch:
                self._translator.feed(raw, events)
                if self._translator.finished:
                    break
            self._clock.watch.heard(events, self._translator.prompt_tokens)
        except Exception as error:
            report_out_of_memory(self._lease, error)
            self._clock.watch.failed(error)
            self._fail(events, Failure(*describe_mid_stream(error), retry=worth_retrying(error)))

    def _fail(self, events: list[Event], failure: Failure) -> None:
        self._translator.finished = True
        events.append(failure)

    async def _finish(self, last: Event) -> None:
        if isinstance(last, Done):
            last.total_ns, last.load_ns = self._clock.total_ns, self._clock.load_ns
            self._clock.watch.done(last)
        await self._calls.aclose()
        if isinstance(last, Done) and self._clock.remember is not None:
            last.context = await self._context(self._clock.remember)
        self._lease.release()

    async def _context(self, remember: Remember) -> tuple[int, ...]:
        """Nothing, if it cannot be had soon: the answer is whole without it."""
        try:
            with trio.move_on_after(CONTEXT_SECONDS):
                return await remember("".join(self._texts))
        except Exception as error:
            logger.warning("an answer of %s comes without its context: %s", self._lease.model, error)
        return ()


def report_out_of_memory(lease: Lease, error: Exception) -> None:
    """R51: a runner that ran out of memory is the scheduler's business, too."""
    if getattr(error, "out_of_memory", False):
        logger.warning("runner of %s ran out of memory: %s", lease.model, error)
        lease.report_out_of_memory()
