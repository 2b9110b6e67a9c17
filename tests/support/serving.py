"""A real server on a free port, a small application to disturb, and raw sockets to disturb it with."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import trio
from quart import Response, request

from trio_ollama.server.asgi import App, request_stack
from trio_ollama.server.fallbacks import install_fallbacks
from trio_ollama.server.limits import Limits
from trio_ollama.server.serve import serve
from trio_ollama.server.sockets import open_listeners
from trio_ollama.server.streaming import NDJSON, stream_response

SOON = 5.0
"""Seconds; what takes milliseconds here may take this long on a busy machine."""

FLOOD = b"f" * 4_095 + b"\n"


class Visit:
    """What became of one request: events, and how its view or its source ended."""

    def __init__(self) -> None:
        self.entered = trio.Event()
        self.released = trio.Event()
        self.go = trio.Event()
        """Set by the test to let the request go on."""
        self.how = ""
        self.received = 0
        """Bytes of the request's body."""
        self.chunks = 0
        """Chunks of the response."""

    async def gone(self, how: str = "cancelled") -> None:
        """The request ends soon, in this way, and has let go of what it held."""
        with trio.fail_after(SOON):
            await self.released.wait()
        assert self.how == how

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        self.entered.set()
        try:
            yield
        except trio.Cancelled:
            self.how = "cancelled"
            raise
        self.how = "done"


class Source:
    """Chunks for `stream_response`: `count` of them, then wait for `visit.go`, then the end."""

    def __init__(self, visit: Visit, chunk: bytes, count: float) -> None:
        self.visit = visit
        self.chunk = chunk
        self.count = count

    async def receive(self) -> bytes:
        visit = self.visit
        if visit.chunks < self.count:
            visit.chunks += 1
            await trio.lowlevel.checkpoint()
            return self.chunk
        with visit.watch():
            await visit.go.wait()
        return b""

    def close(self) -> None:
        self.visit.how = self.visit.how or "closed"


def probe_app(visits: list[Visit]) -> App:
    """An application whose every request takes the next of `visits` (the last one for all that follow)."""
    app = App("probe")
    install_fallbacks(app)

    def next_visit() -> Visit:
        visit = visits.pop(0) if len(visits) > 1 else visits[0]
        request_stack().callback(visit.released.set)
        return visit

    @app.get("/quick")
    async def quick() -> dict[str, str]:
        return {"answer": "quick"}

    @app.route("/wait", methods=["GET", "POST"])
    async def wait() -> str:
        visit = next_visit()
        with visit.watch():
            await visit.go.wait()
        return "waited"

    @app.post("/upload")
    async def upload() -> str:
        visit = next_visit()
        with visit.watch():
            await visit.go.wait()
            async for chunk in request.body:
                visit.received += len(chunk)
        return str(visit.received)

    @app.get("/stream")
    async def stream() -> Response:
        visit = next_visit()
        visit.entered.set()
        return await stream_response(Source(visit, b'{"n": 1}\n', 1), NDJSON)

    @app.get("/flood")
    async def flood() -> Response:
        visit = next_visit()
        visit.entered.set()
        return await stream_response(Source(visit, FLOOD, float("inf")), NDJSON)

    @app.get("/late")
    async def late() -> Response:
        """The response exists, its body has not begun."""
        visit = next_visit()
        return await stream_response(Source(visit, b"never sent", 1), NDJSON)

    @app.after_request
    async def hold(response: Response) -> Response:
        if request.path == "/late":
            visit = visits[0]
            with visit.watch():
                await visit.go.wait()
        return response

    return app


class Server:
    """A running server, as tests see it."""

    def __init__(self, address: tuple[str, int], shutdown: trio.Event) -> None:
        self.address = address
        self.shutdown = shutdown
        self.stopped = trio.Event()

    async def connect(self, *, receive_buffer: int | None = None) -> Client:
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await sock.connect(self.address)
        except BaseException:
            sock.close()
            raise
        return Client(trio.SocketStream(sock))

    async def answers(self) -> None:
        """The server lives: a new client gets an answer soon."""
        async with await self.connect() as client:
            await client.send(get("/quick"))
            assert (await client.response()).status == 200


@contextlib.asynccontextmanager
async def serving(app: Callable[..., Any], limits: Limits | None = None) -> AsyncIterator[Server]:
    """Serve `app` on a free port of the loopback interface; shuts down at the end, within the drain limit."""
    limits = limits or Limits(drain=0.1)
    bound = await open_listeners([("127.0.0.1", 0)])
    async with trio.open_nursery() as nursery:
        server = Server(bound.addresses[0], trio.Event())

        async def run(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC128 - `serve` calls it
            await serve(app, bound.listeners, limits, shutdown=server.shutdown, task_status=task_status)
            server.stopped.set()

        await nursery.start(run)
        yield server
        server.shutdown.set()
        with trio.fail_after(limits.drain + SOON):
            await server.stopped.wait()


class Answer:
    """One parsed response."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *fields = head.decode("ascii").split("\r\n")
        _, status, self.reason = line.split(" ", 2)
        self.status = int(status)
        self.headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        self.body = body


class Client:
    """One connection, byte by byte."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.buffer = b""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def flood(self) -> None:
        """Send until the connection breaks."""
        with trio.fail_after(SOON):
            while True:
                await self.stream.send_all(bytes(65_536))

    async def close(self) -> None:
        """FIN (RST if something is unread)."""
        await trio.aclose_forcefully(self.stream)

    async def reset(self) -> None:
        """RST."""
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self.stream)

    async def half_close(self) -> None:
        """FIN, and stay to read."""
        await self.stream.send_eof()

    async def until(self, mark: bytes) -> bytes:
        """What arrives up to and with `mark`."""
        with trio.fail_after(SOON):
            await trio.lowlevel.checkpoint()
            while mark not in self.buffer:
                data = await self.stream.receive_some()
                assert data, f"connection ended before {mark!r}, after {self.buffer!r}"
                self.buffer += data
        before, _, self.buffer = self.buffer.partition(mark)
        return before + mark

    async def exactly(self, count: int) -> bytes:
        with trio.fail_after(SOON):
            await trio.lowlevel.checkpoint()
            while len(self.buffer) < count:
                data = await self.stream.receive_some()
                assert data, f"connection ended after {self.buffer!r}"
                self.buffer += data
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    async def response(self, *, head_only: bool = False) -> Answer:
        """The next response with a content length."""
        head = (await self.until(b"\r\n\r\n"))[:-4]
        answer = Answer(head, b"")
        if not head_only:
            answer.body = await self.exactly(int(answer.headers.get("content-length", "0")))
        return answer

    async def rest(self, within: float = SOON) -> bytes:
        """Everything until the server ends the connection, which it must do in this time."""
        with trio.fail_after(within):
            while data := await self.stream.receive_some():
                self.buffer += data
        data, self.buffer = self.buffer, b""
        return data

    async def ended(self, within: float = SOON) -> None:
        """The server ends the connection in this time, by FIN or RST, whatever it sends before."""
        with trio.fail_after(within), contextlib.suppress(trio.BrokenResourceError):
            while await self.stream.receive_some():
                pass


def get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def post(path: str, body: bytes) -> bytes:
    return get(path, f"Content-Length: {len(body)}", method="POST") + body
