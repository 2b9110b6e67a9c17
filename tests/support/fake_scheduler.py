"""A scheduler whose runners say what a test wrote down: no process, no waiting, everything recorded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from trio_ollama.scheduler import Demand, RequestView, RunnerView
from trio_ollama.scheduler.core.stages import Stage
from trio_ollama.scheduler.tickets import Ticket

__all__ = ["FakeLease", "FakeScheduler", "chat_end", "chat_events", "completion_events"]

TIMINGS = {"cache_n": 2, "prompt_n": 5, "prompt_ms": 1.5, "predicted_n": 3, "predicted_ms": 2.5}

Batch = list[dict[str, Any]] | Exception
"""What one read of a runner's stream brings, or raises."""


def chat_events(*texts: str, thinking: bool = False) -> list[dict[str, Any]]:
    """Deltas of `/v1/chat/completions`, one for each text."""
    name = "reasoning_content" if thinking else "content"
    return [{"choices": [{"index": 0, "finish_reason": None, "delta": {name: text}}]} for text in texts]


def chat_end(reason: str = "stop", **delta: Any) -> dict[str, Any]:
    """The last event of `/v1/chat/completions`."""
    return {"choices": [{"index": 0, "finish_reason": reason, "delta": delta}], "timings": TIMINGS}


def completion_events(*texts: str, stop_type: str = "eos") -> list[dict[str, Any]]:
    """All events of `/completion`."""
    last = {"content": "", "stop": True, "stop_type": stop_type, "timings": TIMINGS}
    return [*({"content": text, "stop": False} for text in texts), last]


@dataclass(eq=False)
class FakeCall:
    """Gives its batches one by one, then the end of the stream; waits for ever at a None."""

    batches: list[Batch | None]
    waiting: trio.Event
    settled: trio.Event = field(default_factory=trio.Event)
    aborted: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None

    def abort(self, error: Exception) -> None:
        self.error = error
        self.aborted.set()

    async def receive(self) -> list[dict[str, Any]]:
        await trio.lowlevel.checkpoint()
        batch = self.batches.pop(0) if self.batches else []
        if batch is None:
            self.waiting.set()
            await self.aborted.wait()
        if self.error is not None:
            raise self.error
        assert batch is not None
        if isinstance(batch, Exception):
            raise batch
        return batch


@dataclass
class FakeLease:
    """A lease that records what is done with it."""

    scheduler: FakeScheduler
    ticket: Ticket
    context: int = 4096
    slots: int = 1
    batch: int = 512
    generation: int = 1
    released: bool = False
    slot_uses: int = 0
    open_calls: int = 0
    out_of_memory: bool = False

    @property
    def model(self) -> str:
        return self.ticket.demand.model.name

    @property
    def seq(self) -> int:
        return self.ticket.seq

    def abandon(self, error: Exception) -> None:
        self.ticket.fail(error, taken=True)

    def release(self) -> None:
        if not self.released:
            assert self.open_calls == 0, "released while a call is open"
            self.released = True

    def report_out_of_memory(self) -> None:
        self.out_of_memory = True

    @contextlib.asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[FakeCall]:
        await trio.lowlevel.checkpoint()
        assert not self.released
        self.scheduler.calls.append((path, dict(body)))
        script = self.scheduler.script(path, dict(body))
        if isinstance(script, Exception):
            raise script
        self.open_calls += 1
        call = FakeCall(list(script), self.scheduler.waiting)
        self.ticket.calls[call] = None
        try:
            yield call
        finally:
            self.open_calls -= 1
            self.ticket.calls.pop(call)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        assert not self.released
        self.scheduler.calls.append((path, dict(body)))
        answer = self.scheduler.answers[path](dict(body))
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        self.slot_uses += 1
        yield


class FakeScheduler:
    """Grants every demand at once, unless `refusal` is set.

    `script(path, body)` gives the batches of a stream, or the error that opening it raises; `answers[path](body)` the
    answer of a short call, or its error.
    """

    def __init__(self) -> None:
        self.refusal: Exception | None = None
        self.script: Callable[[str, dict[str, Any]], Iterable[Batch | None] | Exception] = lambda path, body: [
            [*chat_events("Hel", "lo"), chat_end()]
        ]
        self.answers: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.context, self.batch = 4096, 512
        self.demands: list[Demand] = []
        self.leases: list[FakeLease] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.stopped: list[str] = []
        self.forced: list[str] = []
        self.waiting = trio.Event()
        """Set when a request waits for a runner that says nothing more."""
        self.views: tuple[RunnerView, ...] = ()
        self.queue: list[RequestView] = []
        """What requests wait for, in order of arrival; as long as there are some, nobody gets a lease."""
        self.place = 0
        """The next of these."""

    async def acquire(self, demand: Demand, asker: object = None) -> FakeLease:
        await trio.lowlevel.checkpoint()
        self.demands.append(demand)
        if self.refusal is not None:
            raise self.refusal
        if self.place < len(self.queue):
            self.queue[self.place] = replace(self.queue[self.place], asker=asker, demand=demand)
            self.place += 1
            self.waiting.set()
            await trio.sleep_forever()
        ticket = Ticket(demand, asker)
        ticket.seq = len(self.demands)
        self.leases.append(FakeLease(self, ticket, self.context, batch=self.batch))
        return self.leases[-1]

    def requests(self) -> tuple[RequestView, ...]:
        held = [lease.ticket for lease in self.leases if not lease.released]
        running = [RequestView(one.asker, one.seq, one.demand, Stage.RUNNING, gen=1) for one in held]
        return (*self.queue[: self.place], *running)

    def runners_of(self, key: str) -> tuple[RunnerView, ...]:
        return tuple(view for view in self.views if view.key == key)

    def force_stop(self, key: str) -> tuple[RunnerView, ...]:
        self.forced.append(key)
        return self.runners_of(key)

    def stop(self, key: str, because: object = None) -> bool:
        self.stopped.append(key)
        return True

    def snapshot(self) -> tuple[RunnerView, ...]:
        return self.views

    @property
    def idle(self) -> bool:
        """True if nothing that was granted is still held."""
        return all(lease.released and not lease.open_calls for lease in self.leases)
