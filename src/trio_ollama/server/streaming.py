"""Streamed responses: how a route hands chunks to its client.

    source = ChatStream(lease, call)                 # receive() -> bytes, b"" at the end; close() releases
    return await stream_response(source, NDJSON)

The first chunk is awaited here, before there is a response, so what fails until then still gets a status code. Every
further chunk is asked for only when the one before was taken by the socket: a slow client slows its own producer and
nothing else. A client that takes nothing for the stall limit is dropped by the connection (R74), which cancels the
request in `receive()` or in the send.

After the first chunk the status is out: a source reports its failure as a last chunk, then b"" (R75). An exception
from `receive()` cuts the connection, so that the client sees a broken stream instead of a complete one.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from quart.wrappers.response import ResponseBody
from quart_trio.wrappers.response import TrioResponse

from .asgi import request_stack
from .replies import encode

__all__ = ["EVENT_STREAM", "NDJSON", "ChunkSource", "StreamingBody", "named_event", "stream_response"]

NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"


def named_event(name: str, value: object) -> bytes:
    """One server-sent event with a name; `value` is anything msgspec encodes."""
    return b"event: " + name.encode() + b"\ndata: " + encode(value) + b"\n\n"


class ChunkSource(Protocol):
    """Where the chunks of one response come from."""

    async def receive(self) -> bytes:
        """The next chunk, one or more whole records; b"" after the last. Called by the request's own task only."""
        ...

    def close(self) -> None:
        """Let go of everything. Synchronous and idempotent; called once the stream is over, however it ended."""
        ...


class StreamingBody(ResponseBody):
    """A plain iterator over `first` and then the source; no generator, whose `finally` might never run (R76).

    Quart leaves it before it sends the end, so a client that has seen the end finds everything released.
    """

    def __init__(self, first: bytes, source: ChunkSource) -> None:
        self._first: bytes | None = first
        self._source = source

    async def __aenter__(self) -> StreamingBody:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._source.close()

    def __aiter__(self) -> StreamingBody:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            chunk, self._first = self._first, None
        else:
            chunk = await self._source.receive()
        if not chunk:
            raise StopAsyncIteration
        return chunk


async def stream_response(source: ChunkSource, content_type: str, *, status: int = 200) -> TrioResponse:
    """A response that streams `source`. Owns it from here on: it is closed even if the response is never sent.

    Waits for the first chunk and raises what that raises.
    """
    request_stack().callback(source.close)
    first = await source.receive()
    return TrioResponse(StreamingBody(first, source), status=status, content_type=content_type)
