"""The short way of a streamed body: past the layers that only pass it on, with the framing they would give it."""

from __future__ import annotations

from collections.abc import Iterator

import trio
from quart import Response

from tests.support.serving import get, serving
from trio_ollama.server.asgi import App
from trio_ollama.server.streaming import NDJSON, stream_response

LARGE = b"0123456789abcdef" * (1 << 16)
"""1 MiB: more than a socket takes at once whose client does not read yet."""


class Pieces:
    def __init__(self, *pieces: bytes) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return next(self._pieces, b"")

    def close(self) -> None:
        pass


def app_of(*pieces: bytes) -> App:
    app = App("pieces")

    @app.get("/")
    async def stream() -> Response:
        return await stream_response(Pieces(*pieces), NDJSON)

    return app


async def test_after_a_stream_the_connection_serves_the_next_request() -> None:
    async with serving(app_of(b"one\n", b"two\n")) as server, await server.connect() as client:
        for _ in range(2):
            await client.send(get("/"))
            assert b"transfer-encoding: chunked" in (await client.until(b"\r\n\r\n")).lower()
            assert await client.until(b"\r\n0\r\n\r\n") == b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"


async def test_a_client_of_http_1_0_gets_it_without_chunks() -> None:
    async with serving(app_of(b"one\n", b"two\n")) as server, await server.connect() as client:
        await client.send(get("/", version="1.0"))
        assert b"chunked" not in (await client.until(b"\r\n\r\n")).lower()
        assert await client.rest() == b"one\ntwo\n"


async def test_the_head_alone_has_no_pieces() -> None:
    async with serving(app_of(b"one\n")) as server, await server.connect() as client:
        for _ in range(2):
            await client.send(get("/", method="HEAD"))
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert client.buffer == b""


async def test_a_piece_that_no_socket_takes_at_once_arrives_whole() -> None:
    async with serving(app_of(LARGE, b"end\n")) as server, await server.connect(receive_buffer=65536) as client:
        await client.send(get("/"))
        await client.until(b"\r\n\r\n")
        assert await client.exactly(len(b"100000\r\n") + len(LARGE) + 2) == b"100000\r\n" + LARGE + b"\r\n"
        assert await client.until(b"\r\n0\r\n\r\n") == b"4\r\nend\n\r\n0\r\n\r\n"


class Steps(trio.abc.Instrument):
    """How often the task of a request ran."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name == "GET /"


class Ready(Pieces):
    """Has them all at hand."""

    async def receive(self) -> bytes:
        return next(self._pieces, b"")


async def test_a_write_that_finds_room_takes_no_turn_of_the_loop() -> None:
    """A turn for each token is what most of a token's price was."""
    app = App("ready")

    @app.get("/")
    async def stream() -> Response:
        return await stream_response(Ready(*[b"one\n"] * 100), NDJSON)

    steps = Steps()
    async with serving(app) as server, await server.connect() as client:
        trio.lowlevel.add_instrument(steps)
        try:
            await client.send(get("/"))
            await client.until(b"\r\n0\r\n\r\n")
        finally:
            trio.lowlevel.remove_instrument(steps)
    assert 0 < steps.count < 50
