"""The server's side of a request: a handler that waits for its runner, and a stream that waits for its reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from trio_ollama.runners.contract import RunnerDiedError, RunnerError

from .channel import Channel, Receive, Send, select
from .child import Child
from .context import ContextCanceledError
from .records import Asked, Loaded

if TYPE_CHECKING:
    from .scheduler import Control

__all__ = ["Answer", "ConnectionLostError", "Lease"]

Record = list[dict[str, Any]] | Exception


class ConnectionLostError(Exception):
    """The server has gone, or closed the connection."""

    def __init__(self) -> None:
        super().__init__("connection lost")


class Answer:
    """What a client waits for."""

    def __init__(self) -> None:
        self.given = trio.Event()
        self.lost = False
        """The connection is gone."""
        self.runner: Loaded | None = None
        self.error: Exception | None = None

    def give(self, runner: Loaded | None, error: Exception | None) -> None:
        if not self.given.is_set():
            self.runner, self.error = runner, error
            self.given.set()

    def lose(self) -> None:
        self.lost = True
        self.give(None, ConnectionLostError())


class Lease:
    """One request that has got its runner, for as long as the client goes on with it."""

    def __init__(self, control: Control, asked: Asked, answer: Answer, child: Child) -> None:
        assert child.process is not None
        self._control = control
        self._asked = asked
        self._answer = answer
        self._child = child
        self._process = child.process
        self.generation = child.pid
        self.model = asked.demand.model.name
        self.slots = child.spec.parallel
        self.context = child.spec.num_ctx
        self.batch = child.spec.num_batch

    def release(self) -> None:
        """The request is over, or its client has left: its context ends, and that is all that happens."""
        self._control.forget(self._asked)
        self._asked.context.cancel()

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Stream, None]:
        tokens: Channel[Record] = Channel()
        wire: Channel[Record] = Channel()
        runtime, who = self._control.state.runtime, self._asked.who
        runtime.go(self._complete, path, body, tokens, name=f"completion for {who}")
        runtime.go(self._respond, tokens, wire, name=f"response to {who}")
        await trio.lowlevel.checkpoint()
        yield Stream(wire, self._asked, self._answer)

    async def _complete(self, path: str, body: Mapping[str, Any], tokens: Channel[Record]) -> None:
        """Read from the child and send on. Nothing but a reader ends the wait of a send (R06)."""
        context = self._asked.context
        try:
            with context.governing():
                await self._child.slots.acquire()
            try:
                async with AsyncExitStack() as stack:
                    with context.governing():
                        call = await stack.enter_async_context(self._process.stream(path, body))
                    while True:
                        with context.governing():
                            events = await call.receive()
                        if not events or context.cancelled:
                            break
                        await tokens.send(events)
            finally:
                self._child.slots.release()
        except (RunnerError, ContextCanceledError) as error:
            if isinstance(error, RunnerDiedError):
                await self._child.close()
            await tokens.send(error)
        tokens.close()

    async def _respond(self, tokens: Channel[Record], wire: Channel[Record]) -> None:
        """Write to the client. A write blocks while the client does not read: buffers are left out."""
        context = self._asked.context
        while not context.cancelled:
            _, record, more = await select(Receive(tokens))
            if not more:
                break
            case, _, _ = await select(Send(wire, record), Receive(context.done))
            if isinstance(case, Receive):
                break
        wire.close()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """One of several calls of a request."""
        with self._connected():
            await self._child.slots.acquire()
        try:
            yield
        finally:
            self._child.slots.release()

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        with self._connected():
            return await self._process.ask(path, body)

    @contextmanager
    def _connected(self) -> Generator[None, None, None]:
        """What the client hears where its handler hears that the context has ended."""
        try:
            with self._asked.context.governing():
                yield
        except ContextCanceledError as error:
            raise ConnectionLostError from error


class Stream:
    """The client's end of an answer."""

    def __init__(self, wire: Channel[Record], asked: Asked, answer: Answer) -> None:
        self._wire = wire
        self._asked = asked
        self._answer = answer
        self.settled = trio.Event()

    async def receive(self) -> list[dict[str, Any]]:
        case, record, more = await select(Receive(self._wire), Receive(self._asked.context.done))
        if isinstance(case, Receive) and case.channel is not self._wire:
            raise ConnectionLostError
        if not more:
            if self._answer.lost:
                raise ConnectionLostError
            return []
        if isinstance(record, Exception):
            raise record
        return record  # type: ignore[no-any-return]
