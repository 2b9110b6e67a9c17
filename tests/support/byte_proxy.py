"""Bytes between a client and a server, whatever they mean: counted, held back, and seen to end.

It may be what HTTPS_PROXY names: then it leads to the same server whatever it is asked for.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import AsyncIterator, Callable

import trio

__all__ = ["ByteProxy", "byte_proxy"]

PIECE = 64 * 1024


class ByteProxy:
    """See the module. `upstream` is a port on the loopback interface; only what comes from there is held back."""

    def __init__(self, upstream: int, sock: socket.socket, *, asked: bool = False) -> None:
        """`asked`: clients say by CONNECT where they want to be led."""
        self.upstream = upstream
        self.wishes: list[str] = []
        """What clients asked for, the first line of each."""
        self._asked = asked
        self.port: int = sock.getsockname()[1]
        self.total = 0
        """Bytes from the server to clients."""
        self.open = 0
        """Connections whose client is still there."""
        self._allowed = math.inf
        self._changed = trio.Event()
        self._socket = sock

    def allow(self, total: float) -> None:
        """Let bytes from the server pass until it were so many in all; what comes then waits."""
        self._allowed = total
        self._tell()

    async def passed(self, total: int, within: float = 30.0) -> None:
        """Wait until so many bytes have passed in all."""
        await self._until(lambda: self.total >= total, within)

    async def left(self, within: float = 10.0) -> None:
        """Wait until no client is connected any more."""
        await self._until(lambda: not self.open, within)

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
        await trio.serve_listeners(self._serve, [listener])

    async def _until(self, happened: Callable[[], bool], within: float) -> None:
        with trio.fail_after(within):
            await trio.lowlevel.checkpoint()
            while not happened():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _serve(self, client: trio.SocketStream) -> None:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * PIECE)
        self.open += 1
        try:
            async with (
                client,
                await trio.open_tcp_stream("127.0.0.1", self.upstream) as server,
                trio.open_nursery() as nursery,
            ):
                if self._asked:
                    await self._listen(client)
                nursery.start_soon(self._down, server, client)
                await self._up(client, server)
                nursery.cancel_scope.cancel("the client has left")
        finally:
            self.open -= 1
            self._tell()

    async def _listen(self, client: trio.SocketStream) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):  # nothing comes behind it before our answer
            head += await client.receive_some(PIECE)
        self.wishes.append(head.split(b"\r\n", 1)[0].decode())
        await client.send_all(b"HTTP/1.1 200 Go ahead\r\n\r\n")

    async def _up(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await client.receive_some(PIECE):
                await server.send_all(data)

    async def _down(self, server: trio.SocketStream, client: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await server.receive_some(PIECE):
                while self.total >= self._allowed:
                    await self._changed.wait()
                self.total += len(data)
                self._tell()
                await client.send_all(data)
            await client.send_eof()


@contextlib.asynccontextmanager
async def byte_proxy(
    upstream: int, *, sock: socket.socket | None = None, asked: bool = False
) -> AsyncIterator[ByteProxy]:
    """A running proxy, on the loopback interface. `sock` listens already; it is closed in the end."""
    sock = sock or socket.create_server(("127.0.0.1", 0), backlog=256)
    sock.setblocking(False)
    proxy = ByteProxy(upstream, sock, asked=asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(proxy.run)  # noqa: ASYNC113 - the socket listens already
        yield proxy
        nursery.cancel_scope.cancel("the test is over")
