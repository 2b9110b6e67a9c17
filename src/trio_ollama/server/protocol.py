"""The HTTP that this server speaks: hypercorn's HTTP/1.1, without its upgrades, and never blind to a disconnect."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream

from .limits import Limits

__all__ = ["Http1Protocol", "make_config"]

REASONS: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}


def make_config(limits: Limits) -> Config:
    """hypercorn's configuration, as far as its protocol classes read it."""
    config = Config()
    config.h11_max_incomplete_size = limits.head
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = None
    return config


class Http1Protocol(H11Protocol):
    """HTTP/1.1 and 1.0 only: no h2c, no HTTP/2 preface, no WebSocket (each can be made to crash hypercorn).

    `H11Protocol` waits inside its event loop while a client sends ahead, and so sees no disconnect until the response
    is done (R73). Here `pump` returns instead, the connection keeps reading, and the end of the response starts a pump
    of its own.
    """

    def __init__(self, limits: Limits, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.limits = limits
        self.closed = False
        self._head = b""
        self._chunked = False
        """How the end of a body is told whose length nobody knows."""
        self._paused = False
        self._pumping = trio.Lock()

    @property
    def busy(self) -> bool:
        """True while a request is being answered."""
        return self.stream is not None

    @property
    def all_read(self) -> bool:
        """True if the client has sent whole requests and, as far as we know, nothing behind the last one."""
        return self.connection.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED) and not self._paused

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            self.connection.receive_data(event.data)
            await self.pump()
        else:
            self.closed = True
            await super().handle(event)

    async def pump(self) -> None:
        """Turn what has arrived into events, until more is needed or the running request has to end first."""
        async with self._pumping:
            while not self.closed and await self._step():
                pass

    async def _step(self) -> bool:
        """One event. False when there is nothing more to do now."""
        if self.connection.they_are_waiting_for_100_continue:
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            event = self.connection.next_event()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        if event is h11.PAUSED:
            self._paused = True
            if len(self.connection.trailing_data[0]) > self.limits.ahead:
                await self.send(Closed())
            return False
        if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
            return False
        if isinstance(event, h11.Request):
            await self.send(Updated(idle=False))
            await self._begin(event)
        elif self.stream is not None:
            if isinstance(event, h11.Data):
                await self.stream.handle(Body(stream_id=STREAM_ID, data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await self.stream.handle(EndBody(stream_id=STREAM_ID))
        return True

    async def _begin(self, request: h11.Request) -> None:
        # h11 limits only what has to wait for more bytes; a head that comes in one piece passes it.
        if len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers) > self.limits.head:
            await self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        if request.http_version not in (b"1.0", b"1.1"):
            await self._refuse(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
            return
        self._chunked = request.http_version == b"1.1"
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode("ascii"),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )

    async def stream_send(self, event: StreamEvent) -> None:
        if self.closed:
            return
        if isinstance(event, Response):
            # Held back until the first piece of the body: one write and one packet for most responses.
            self._head = self.connection.send(self._response(event.status_code, event.headers))
        elif isinstance(event, Body | EndBody):
            piece = h11.Data(data=event.data) if isinstance(event, Body) else h11.EndOfMessage()
            data, self._head = self._head + self.connection.send(piece), b""
            await self.send(RawData(data))
        else:
            await super().stream_send(event)

    def framed(self, piece: bytes) -> bytes:
        """A piece of a body whose length nobody knows, as h11 would frame it, at a fraction of its price."""
        head, self._head = self._head, b""
        if self._chunked:
            return b"%b%x\r\n%b\r\n" % (head, len(piece), piece)
        return head + piece  # its end is the end of the connection

    def _response(self, status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
        headers = [*headers, *self.config.response_headers("h11")]
        if self.closed or self.context.terminated.is_set() or self.connection.their_state is h11.SEND_BODY:
            # Refused, shutting down, or answered before all of the request was read: the last one on this connection.
            headers.append((b"connection", b"close"))
        return h11.Response(status_code=status, headers=headers, reason=REASONS.get(status, b""))

    async def _maybe_recycle(self) -> None:
        await super()._maybe_recycle()
        if self._paused and not self.closed:
            self._paused = False
            self.task_group.spawn(self.pump)

    async def _refuse(self, status: int) -> None:
        """Answer a request that is none, if nothing was answered yet, and end the connection."""
        self.closed = True  # from here on a request that is already running has no say
        if self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = self.connection.send(self._response(status, [(b"content-length", b"0")]))
            self.connection.send(h11.EndOfMessage())
            await self.send(RawData(head))
        await self.send(Closed())
