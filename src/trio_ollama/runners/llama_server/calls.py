"""The calls to one child: each over a fresh connection, given up by closing the sending side.

A closed sending side is what the server takes for a disconnect. The other side stays open until the server closes it,
which tells that it has noticed; then the slot is free after the running batch (see `slots`). A task of the runner
does that waiting; the caller is gone by then.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final

import msgspec
import trio

from trio_ollama.runners.contract import Exit, RunnerDiedError, RunnerRefusedError, looks_like_out_of_memory
from trio_ollama.runners.llama_server.endpoint import Endpoint
from trio_ollama.runners.llama_server.http import (
    LARGEST_ANSWER,
    LARGEST_EVENT,
    EventParser,
    ProtocolError,
    ResponseParser,
    error_of,
    request,
)
from trio_ollama.runners.llama_server.slots import SlotLedger

__all__ = ["ChildCalls", "StreamingCall"]

READ_SIZE: Final = 64 * 1024

BUSY_RETRIES: Final = 10
BUSY_PAUSE: Final = 0.005
"""Seconds; the child may still clean up a slot that it has already reported free (R56)."""

GENERATING: Final = frozenset({"/completion", "/completions", "/v1/completions", "/chat/completions"}) | {
    "/v1/chat/completions"
}
SLOTLESS: Final = frozenset({"/tokenize", "/detokenize", "/apply-template", "/props", "/health"})

UNREACHABLE: Final = (
    "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, "
    "check ollama server logs for details"
)
BROKEN_OFF: Final = "an error was encountered while running the model"


class ChildCalls:
    """Everything that is asked of one child."""

    def __init__(self, endpoint: Endpoint, autopsy: Callable[[], Awaitable[Exit | None]]) -> None:
        """`autopsy` waits a moment for the process to be reaped and tells how it ended, None if it lives."""
        self.endpoint = endpoint
        self.slots = SlotLedger()
        self._autopsy = autopsy
        self._nursery: trio.Nursery | None = None

    def open(self, nursery: trio.Nursery) -> None:
        """From now on calls that are given up linger in this nursery until the child has noticed."""
        self._nursery = nursery

    def close(self) -> None:
        """The child is gone, and every call with it."""
        self._nursery = None
        self.slots.child_gone()

    def stream(self, path: str, body: Mapping[str, Any]) -> StreamingCall:
        """See `contract.Runner.stream`."""
        return StreamingCall(self, path, body)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """See `contract.Runner.ask`."""
        if path in GENERATING:
            raise ValueError(f"{path} generates: it has to be streamed")
        async with StreamingCall(self, path, body) as call:
            return await call.answer()

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON answer of a GET. Raises `OSError`, `EOFError` or `ProtocolError`."""
        parser = ResponseParser()
        async with await self.endpoint.connect() as connection:
            await _send(connection, request("GET", path, key=self.endpoint.key))
            while not parser.complete:
                parser.feed(await _receive(connection))
        return parser.status, _json(parser.take())

    def linger(self, call: StreamingCall, connection: trio.SocketStream) -> None:
        """Give up a call. At once, and without waiting."""
        if self._nursery is None:
            connection.socket.close()
            self.slots.finished(call)
            return
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_WR)
        self._nursery.start_soon(self._wait_until_noticed, call, connection, name=f"give up {call.path}")

    async def _wait_until_noticed(self, call: StreamingCall, connection: trio.SocketStream) -> None:
        """Ends with the child at the latest; whoever waits for `settled` sets the bound (R08)."""
        try:
            while await _receive(connection):
                pass
        except OSError:
            pass
        finally:
            connection.socket.close()
        self.slots.hung_up(call)

    async def died(self, text: str) -> RunnerDiedError:
        """The error for a call whose connection broke; `text` says in which phase."""
        exited = await self._autopsy()
        if text is UNREACHABLE:
            reason = f": {exited.describe()}" if exited else ""
        elif exited and exited.lines:
            reason = ": " + " | ".join(exited.lines)
        else:
            reason = ": unexpected EOF" + (f" ({exited.describe()})" if exited else "")
        return RunnerDiedError(text + reason, out_of_memory=looks_like_out_of_memory(reason))


class StreamingCall:
    """One call: the context manager and what it yields (`contract.Call`).

    `settled` can be read before the call is entered, and stays true to its word if entering is cancelled.
    """

    def __init__(self, calls: ChildCalls, path: str, body: Mapping[str, Any]) -> None:
        self.path = path
        self.settled = trio.Event()
        self._calls = calls
        # Only a stream that reports its progress is given up in bounded time: never leave that to the caller.
        self._body = {**body, "stream": True, "return_progress": True} if path in GENERATING else body
        self._connection: trio.SocketStream | None = None
        self._parser = ResponseParser(LARGEST_EVENT)
        self._events: EventParser | None = None
        self._sent = False
        self._over = False
        """The end was reached, or an error event, which is the last one."""
        self._broken = False
        """The connection has ended before the answer."""
        self._error: Exception | None = None
        """What the next `receive` raises: an error event that came behind others in one read, or why the call was
        aborted."""
        self._entering: trio.CancelScope | None = None

    def settle(self) -> None:
        """Called by the ledger."""
        self.settled.set()

    async def __aenter__(self) -> StreamingCall:
        message = request("POST", self.path, msgspec.json.encode(self._body), key=self._calls.endpoint.key)
        try:
            with trio.CancelScope() as self._entering:
                await self._enter(message)
            self._entering = None
            if self._error is not None:
                raise self._error
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def abort(self, error: Exception) -> None:
        """See `contract.OpenCall.abort`. No scope around each read for it: a read is made for every token."""
        self._error = self._error or error
        if self._entering is not None:
            self._entering.cancel("aborted")
        elif self._connection is not None:
            trio.lowlevel.notify_closing(self._connection.socket)

    async def receive(self) -> list[dict[str, Any]]:
        """See `contract.Call.receive`. An answer that is plain JSON is one event."""
        if self._error is not None:
            raise self._error
        if self._events is None:
            await trio.lowlevel.checkpoint()
            if self._over:
                return []
            answer = await self.answer()
            return [answer] if isinstance(answer, dict) else [{"data": answer}]
        while not self._over:
            if events := self._decode():
                return events
            if self._parser.complete:
                self._over = True
                if not self._events.final:
                    raise await self._calls.died(BROKEN_OFF)
                break
            await self._read(BROKEN_OFF)
        await trio.lowlevel.checkpoint()
        return []

    async def answer(self) -> Any:
        """The whole answer as JSON."""
        while not self._parser.complete:
            await self._read(BROKEN_OFF)
        self._over = True
        return _json(self._parser.take())

    async def _enter(self, message: bytes) -> None:
        """Get a head that is no refusal."""
        for attempt in range(BUSY_RETRIES + 1):
            try:
                return await self._open(message)
            except RunnerRefusedError as error:
                if "no slot available" not in str(error).lower() or attempt == BUSY_RETRIES:
                    raise
            await trio.sleep(BUSY_PAUSE)

    async def _open(self, message: bytes) -> None:
        """Send the request and wait for the head of the answer."""
        self._parser = ResponseParser(LARGEST_EVENT)
        self._over = self._sent = self._broken = False
        if self.path not in SLOTLESS:
            self._calls.slots.opened(self)
        broken = False
        try:
            self._connection = await self._calls.endpoint.connect()
            await _send(self._connection, message)
        except OSError:
            broken = True
        # A child that has closed without reading all may have answered before: that tells more.
        if broken and (self._connection is None or not await self._answered()):
            raise await self._calls.died(UNREACHABLE)
        self._sent = True
        while not self._parser.status:
            await self._read(UNREACHABLE)
        if self._parser.status >= 400:
            await self._refused()
        if self._parser.headers.get("content-type", "").startswith("text/event-stream"):
            self._events = EventParser()
        else:
            self._parser.limit = LARGEST_ANSWER

    async def _answered(self) -> bool:
        assert self._connection is not None
        try:
            self._parser.feed(await _receive(self._connection))
        except (OSError, EOFError, ProtocolError):
            return False
        return bool(self._parser.status)

    async def _refused(self) -> None:
        while not self._parser.complete:
            await self._read(UNREACHABLE)
        assert self._connection is not None
        self._connection.socket.close()
        self._connection = None
        raise self._refusal(_json(self._parser.take()))

    def _refusal(self, answer: Any) -> RunnerRefusedError:
        self._over = True
        text, kind, code = error_of(answer, f"llama-server answered with status {self._parser.status}")
        status = self._parser.status if self._parser.status >= 400 else code or 500
        return RunnerRefusedError(status, text, kind=kind)

    async def _read(self, phase: str) -> None:
        assert self._connection is not None
        try:
            self._parser.feed(await _receive(self._connection))
        except (OSError, EOFError):
            self._broken = True
        except ProtocolError as error:
            raise RunnerDiedError(f"{BROKEN_OFF}: {error}") from None
        except trio.ClosedResourceError:
            assert self._error is not None
            raise self._error from None
        if self._broken:
            raise await self._calls.died(phase)

    def _decode(self) -> list[dict[str, Any]]:
        """The events of what was read; an error event is raised, after those in front of it."""
        assert self._events is not None
        if not self._parser.buffered:
            return []
        try:
            events = self._events.feed(self._parser.take())
        except ProtocolError as error:
            raise RunnerDiedError(f"{BROKEN_OFF}: {error}") from None
        for index, event in enumerate(events):
            if "error" in event:
                self._error = self._refusal(event)
                if index == 0:
                    raise self._error
                return events[:index]
        return events

    def _leave(self) -> None:
        """Close the connection: give the call up if it was sent and its end not reached, else be done (R11)."""
        connection, self._connection = self._connection, None
        if connection is None:
            self._calls.slots.finished(self)
        elif self._broken:
            connection.socket.close()
            self._calls.slots.hung_up(self)
        elif not self._sent or self._over or self._parser.complete or (self._events and self._events.final):
            connection.socket.close()
            self._calls.slots.finished(self)
        else:
            self._calls.linger(self, connection)


async def _send(connection: trio.SocketStream, message: bytes) -> None:
    try:
        await connection.send_all(message)
    except trio.BrokenResourceError as error:
        raise ConnectionError(str(error)) from error


async def _receive(connection: trio.SocketStream) -> bytes:
    """One read, once there is something. `SocketStream.receive_some` tries to read first, mostly in vain, and costs
    several times as much. Raises `OSError`."""
    while True:
        await trio.lowlevel.wait_readable(connection.socket)
        try:
            return os.read(connection.socket.fileno(), READ_SIZE)
        except BlockingIOError:
            pass  # ready for a moment only


def _json(body: bytes) -> Any:
    """Parsed if it is JSON, else the text."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode(errors="replace")
