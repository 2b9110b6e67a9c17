"""One TCP connection: the socket's side of `Http1Protocol`, and the owner of the requests that come over it.

A reader is always waiting on the socket, so a client that leaves is noticed at once, whatever else goes on; it cancels
the running request. Writing can be cancelled and has a stall limit; a write that did not finish has lost the framing,
so the connection dies with it. Nothing that goes wrong here reaches another connection (hypercorn's own shell lets a
malformed request end the server).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from .exchange import Application, Exchange
from .limits import Limits
from .protocol import Http1Protocol

__all__ = ["Connection"]

RECEIVE = 64 * 1024
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: drop what was not sent and reset, instead of trying to deliver it for minutes."""

logger = logging.getLogger(__name__)


class Connection:
    """Serves one client's connection. Also what hypercorn's classes call a task group: `spawn`, `spawn_app`."""

    def __init__(
        self, app: Application, config: Config, limits: Limits, context: WorkerContext, stream: trio.SocketStream
    ) -> None:
        self._app = app
        self._config = config
        self._limits = limits
        self._context = context
        self._socket = stream.socket
        self._stream = stream
        self._protocol: Http1Protocol
        self._nursery: trio.Nursery
        self._exchange: Exchange | None = None
        self._writing = trio.Lock()
        self._reading = trio.CancelScope()
        """Around the reader; its deadline is the idle timer, infinite while a request is being answered."""
        self._idle = True
        self._finishing = False

    async def run(self) -> None:
        """Serve until the client leaves, the connection is idle for too long, or the server winds down."""
        try:
            client = parse_socket_addr(self._socket.family, self._socket.getpeername())
            server = parse_socket_addr(self._socket.family, self._socket.getsockname())
        except OSError:
            client = server = None  # reset before we came to it: reading will say so
        self._protocol = Http1Protocol(
            self._limits,
            self._app,
            self._config,
            self._context,
            self,
            ConnectionState({}),
            False,
            client,
            server,
            self._send,
        )
        try:
            async with trio.open_nursery() as self._nursery:
                await self._read()
                self._leave("the client disconnected")
                await self._protocol.handle(Closed())
        except* Exception as errors:
            logger.error("error in the connection with %s", client, exc_info=errors)
        finally:
            self._socket.close()

    def wind_down(self) -> None:
        """The server shuts down: end now if no request is being answered, else after its response."""
        if self._idle:
            self._reading.cancel("shutting down")

    # What hypercorn's protocol classes ask of a task group.

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        self._nursery.start_soon(function, *arguments, name="pump")

    async def spawn_app(
        self, app: Application, config: Config, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        self._exchange = Exchange(scope, send, self._write_piece)
        self._nursery.start_soon(self._exchange.run, app, name=f"{scope['method']} {scope['path']}")
        return self._exchange.put

    # The socket.

    async def _read(self) -> None:
        self._reading.deadline = trio.current_time() + self._limits.keep_alive
        with self._reading:
            try:
                while data := await self._stream.receive_some(RECEIVE):
                    if not self._finishing:
                        await self._protocol.handle(RawData(bytes(data)))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # reset by the client, or closed by a write that failed

    async def _send(self, event: Event) -> None:
        """What `Http1Protocol` has to say."""
        if isinstance(event, RawData):
            if event.data:
                await self._write(event.data)
        elif isinstance(event, Closed):
            self._finish()
        elif isinstance(event, Updated):
            self._idle = event.idle
            self._reading.deadline = trio.current_time() + self._limits.keep_alive if event.idle else math.inf

    async def _write_piece(self, piece: bytes) -> None:
        if not self._protocol.closed:
            await self._write(self._protocol.framed(piece))

    async def _write(self, data: bytes) -> None:
        """Send all of `data`, as long as the client takes some of it within the stall limit."""
        # Nearly every write finds room at once: no lock, deadline or turn of the loop then.
        sent = 0
        if not self._writing.locked() and not self._protocol.closed:
            try:
                sent = os.write(self._socket.fileno(), data)
            except OSError:
                sent = 0  # no room; anything else is still wrong in the long way
        if sent < len(data):
            await self._write_slowly(memoryview(data)[sent:])
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _write_slowly(self, rest: memoryview) -> None:
        if self._writing.locked():
            await self._writing.acquire()
        else:
            self._writing.acquire_nowait()  # no checkpoint: some of it may be sent already
        try:
            with trio.CancelScope() as stall:
                while True:
                    stall.deadline = trio.current_time() + self._limits.stall
                    rest = rest[await self._socket.send(rest) :]
                    if not rest:
                        break
        except OSError:
            self._abort("the client disconnected")
        except trio.ClosedResourceError:
            pass  # closed by `_abort`
        finally:
            self._writing.release()
            if rest:
                self._abort("the client does not read" if stall.cancelled_caught else "cancelled in a write")

    def _leave(self, reason: str, *, cut: bool = False) -> None:
        if self._exchange is not None:
            self._exchange.leave(reason, cut=cut)

    def _finish(self) -> None:
        """Nothing more will be sent. If the client may still be sending, what comes is discarded for a moment: closing
        a socket with unread data resets it, and the reset can overtake the response."""
        if self._protocol.busy:
            self._leave("the client broke the protocol")
        self._exchange = None
        self._finishing = self._protocol.closed = True
        with contextlib.suppress(OSError):  # already gone
            self._socket.shutdown(socket.SHUT_WR)
        if self._protocol.all_read:
            self._reading.cancel("the response was the last one")
        else:
            self._reading.deadline = trio.current_time() + self._limits.linger

    def _abort(self, reason: str) -> None:
        """End the connection now, whatever is still to be sent."""
        self._leave(reason, cut=True)
        self._protocol.closed = True
        self._reading.cancel(reason)
        with contextlib.suppress(OSError):  # already closed
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._socket.close()
