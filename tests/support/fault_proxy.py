"""A proxy in front of a registry that does harm on order, and counts what passes.

Everything passes unharmed unless a `Fault` says otherwise. Blob bytes can be held (`allow`) and slowed (`rate`), so
that a test meets a transfer at a known point.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final

import h11
import trio

from tests.support.proxy_faults import Answer, Exchange, Fault, Then

__all__ = ["FaultProxy", "fault_proxy"]

PIECE: Final = 256 * 1024
"""Bytes that pass at once at most."""
RESET: Final = struct.pack("ii", 1, 0)


class Cut(Exception):
    """A connection ends here."""

    def __init__(self, then: Then) -> None:
        super().__init__(then)
        self.then = then


class FaultProxy:
    """See the module. `upstream` is the registry's port on the loopback interface."""

    def __init__(self, upstream: int, sock: socket.socket) -> None:
        self.upstream = upstream
        self.exchanges: list[Exchange] = []
        self.faults: list[Fault] = []
        self.rate = math.inf
        """Bytes of blobs a second, of all connections together."""
        self.total = 0
        """Bytes of blobs that passed, both ways together."""
        self.port: int = sock.getsockname()[1]
        self._socket = sock
        self._allowed = math.inf
        self._free_at = -math.inf
        self._changed = trio.Event()

    @property
    def host(self) -> str:
        """As it stands before a model's name."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def add(self, *faults: Fault) -> None:
        self.faults += faults

    def allow(self, total: float) -> None:
        """Let blob bytes pass until it were so many in all; what comes then waits."""
        self._allowed = total
        self._tell()

    async def passed(self, total: int, within: float = 30.0) -> None:
        """Wait until so many blob bytes have passed in all."""
        with trio.fail_after(within):
            await trio.lowlevel.checkpoint()
            while self.total < total:
                await self._changed.wait()

    def gets(self, digest: str) -> list[Exchange]:
        """The requests for a blob's bytes, but for those that want one only, to see where the blob lies."""
        asked = [one for one in self.exchanges if one.method == "GET" and one.digest == digest]
        return [one for one in asked if one.headers.get("range") != "bytes=0-0"]

    async def left(self, exchange: Exchange, within: float = 10.0) -> float:
        """Wait until the client has left this exchange; the moment when it did."""
        with trio.fail_after(within):
            await trio.lowlevel.checkpoint()
            while exchange.left_at is None:
                await self._changed.wait()
        return exchange.left_at

    async def ended(self, exchange: Exchange, within: float = 10.0) -> None:
        """Wait until nothing passes in this exchange any more."""
        with trio.fail_after(within):
            await trio.lowlevel.checkpoint()
            while not exchange.ended:
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # Serving

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
        await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, stream: trio.SocketStream) -> None:
        # A large buffer here would hide from the counts how much the client took.
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)
        async with stream:
            http = h11.Connection(h11.SERVER)
            with contextlib.suppress(trio.BrokenResourceError, OSError):
                while await self._exchange(stream, http):
                    http.start_next_cycle()

    async def _exchange(self, stream: trio.SocketStream, http: h11.Connection) -> bool:
        """One request of a client; whether there may be another one on this connection."""
        request = await event_of(stream, http)
        if not isinstance(request, h11.Request):
            return False
        exchange = Exchange(
            request.method.decode(),
            request.target.decode(),
            {name.decode().lower(): value.decode() for name, value in request.headers},
        )
        self.exchanges.append(exchange)
        exchange.fault = fault = next((one for one in self.faults if one.fits(exchange)), None)
        if fault is not None:
            fault.times -= 1
        try:
            if fault is not None and fault.answer is not None:
                await self._answer(stream, http, exchange, fault.answer)
            else:
                await self._forward(stream, http, exchange, request)
        except Cut as cut:
            match cut.then:
                case Then.RESET:
                    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                case Then.STALL:
                    await self._until_left(stream, http, exchange)
            return False
        finally:
            exchange.ended = True
            self._tell()
        return exchange.done and http.our_state is h11.DONE and http.their_state is h11.DONE

    async def _answer(
        self,
        stream: trio.SocketStream,
        http: h11.Connection,
        exchange: Exchange,
        answer: Answer | Callable[[Exchange], Answer],
    ) -> None:
        while isinstance(event := await event_of(stream, http), h11.Data):
            exchange.received += len(event.data)
        if callable(answer):
            answer = answer(exchange)
        exchange.status = answer.status
        headers = [("Content-Length", str(len(answer.body))), *answer.headers.items()]
        await send(stream, http, h11.Response(status_code=answer.status, headers=headers))
        if exchange.method != "HEAD":
            await send(stream, http, h11.Data(data=answer.body))
        exchange.done = True
        await send(stream, http, h11.EndOfMessage())

    async def _forward(
        self, stream: trio.SocketStream, http: h11.Connection, exchange: Exchange, request: h11.Request
    ) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", self.upstream) as registry:
            behind = h11.Connection(h11.CLIENT)
            headers = [
                (name, value) for name, value in request.headers if name.lower() not in (b"connection", b"range")
            ]
            if wanted := wanted_range(exchange):
                headers.append((b"Range", wanted.encode()))
            await send(registry, behind, h11.Request(method=request.method, target=request.target, headers=headers))
            while isinstance(event := await event_of(stream, http), h11.Data):
                await self._pass(registry, behind, bytes(event.data), exchange, exchange.received, upwards=True)
            if not isinstance(event, h11.EndOfMessage):
                return  # the client left in the middle; so do we
            await send(registry, behind, event)
            ended: Exception | None = None
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    await self._until_left(stream, http, exchange)
                    nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                try:
                    await self._respond(stream, http, registry, behind, exchange)
                except (Cut, trio.BrokenResourceError) as error:
                    ended = error  # not from here: a nursery would make a group of it
                nursery.cancel_scope.cancel()
            if ended is not None:
                raise ended

    async def _respond(
        self,
        stream: trio.SocketStream,
        http: h11.Connection,
        registry: trio.SocketStream,
        behind: h11.Connection,
        exchange: Exchange,
    ) -> None:
        response = await event_of(registry, behind)
        assert isinstance(response, h11.Response), response
        exchange.status = response.status_code
        lengths = [int(value) for name, value in response.headers if name == b"content-length"]
        exchange.length = lengths[0] if lengths and exchange.method != "HEAD" else 0
        headers = [(name, value) for name, value in response.headers if name.lower() != b"connection"]
        await send(
            stream, http, h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)
        )
        while isinstance(event := await event_of(registry, behind), h11.Data):
            await self._pass(stream, http, bytes(event.data), exchange, exchange.sent, upwards=False)
        exchange.done = isinstance(event, h11.EndOfMessage)
        if exchange.done:
            await send(stream, http, event)

    async def _until_left(self, stream: trio.SocketStream, http: h11.Connection, exchange: Exchange) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await stream.receive_some(PIECE):
                http.receive_data(data)  # the next request, of a client that has all of the response already
        if exchange.sent < exchange.length:
            exchange.left_at = trio.current_time()
            self._tell()

    async def _pass(
        self,
        stream: trio.SocketStream,
        http: h11.Connection,
        data: bytes,
        exchange: Exchange,
        position: int,
        *,
        upwards: bool,
    ) -> None:
        """Pass a piece of a body, `position` bytes after its beginning. Raises Cut."""
        fault = exchange.fault
        if fault is not None and (upwards or exchange.received == 0):
            begin = position if upwards else exchange.start + position
            if fault.flip is not None and begin <= fault.flip < begin + len(data):
                changed = bytearray(data)
                changed[fault.flip - begin] ^= 0xFF
                data = bytes(changed)
        else:
            fault = None
        blob = exchange.digest is not None or "/blobs/uploads/" in exchange.path
        while data:
            room = len(data)
            if fault is not None and fault.then is not None:
                room = min(room, fault.after - position)
                if room <= 0:
                    raise Cut(fault.then)
            if blob:
                room = await self._room(room)
                self.total += room
            position += room
            # Counted first: whoever has the bytes may look at the count at once.
            if upwards:
                exchange.received = position
            else:
                exchange.sent = position
            self._tell()
            await send(stream, http, h11.Data(data=data[:room]))
            data = data[room:]

    async def _room(self, wanted: int) -> int:
        """Wait until blob bytes may pass; how many, `wanted` at most."""
        if self.rate < math.inf:
            self._free_at = max(self._free_at, trio.current_time()) + wanted / self.rate
            await trio.sleep_until(self._free_at)
        while self.total >= self._allowed:
            await self._changed.wait()
        return int(min(wanted, self._allowed - self.total))


def wanted_range(exchange: Exchange) -> str | None:
    """The `Range` that the registry sees."""
    wanted, fault = exchange.headers.get("range"), exchange.fault
    if fault is None or wanted is None:
        return wanted
    if fault.whole:
        return None
    if fault.short is not None:
        return f"bytes={exchange.start}-{exchange.start + fault.short - 1}"
    return wanted


async def event_of(stream: trio.SocketStream, http: h11.Connection) -> h11.Event:
    """The next event of a connection. `ConnectionClosed` also where the peer ends it in the middle."""
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await stream.receive_some(PIECE))
    except h11.RemoteProtocolError:
        return h11.ConnectionClosed()
    return event if not isinstance(event, type) else h11.ConnectionClosed()


async def send(stream: trio.SocketStream, http: h11.Connection, event: h11.Event) -> None:
    if data := http.send(event):
        await stream.send_all(data)


@contextlib.asynccontextmanager
async def fault_proxy(upstream: int = 0) -> AsyncIterator[FaultProxy]:
    """A running proxy. The port of what it leads to may be set later."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=256)
    sock.setblocking(False)
    proxy = FaultProxy(upstream, sock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(proxy.run)  # noqa: ASYNC113 - the socket listens already
        yield proxy
        nursery.cancel_scope.cancel()
