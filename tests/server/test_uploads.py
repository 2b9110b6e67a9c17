"""Uploads are pulled, never piled up (D6), and bodies read whole have a limit."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import trio
from quart import request
from trio.testing import wait_all_tasks_blocked

from tests.support.serving import Client, Visit, get, post, probe_app, serving
from trio_ollama.server.asgi import App
from trio_ollama.server.body import read_json
from trio_ollama.server.fallbacks import install_fallbacks

MIB = 1024 * 1024
SIZE = 64 * MIB
LIMIT = 100_000


def resident() -> int:
    """Bytes of physical memory that this process has."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


class Upload:
    """Sends `SIZE` bytes and counts them."""

    sent = 0

    async def run(self, client: Client) -> None:
        piece = bytes(MIB)
        await client.send(get("/upload", f"Content-Length: {SIZE}", method="POST"))
        while self.sent < SIZE:
            await client.send(piece)
            self.sent += len(piece)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
async def test_a_consumer_that_does_not_read_holds_the_client_back() -> None:
    visit, upload = Visit(), Upload()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        before = resident()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload.run, client)
            await visit.entered.wait()
            await wait_all_tasks_blocked(0.3)
            assert upload.sent < SIZE / 2, "nothing held the client back"
            assert resident() - before < 10 * MIB
            visit.go.set()
        with trio.fail_after(20):
            await visit.released.wait()
        assert visit.received == SIZE
        assert resident() - before < 10 * MIB


async def test_a_client_that_leaves_in_the_middle_cancels_the_upload() -> None:
    visit = Visit()
    visit.go.set()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/upload", f"Content-Length: {SIZE}", method="POST"))
        await client.send(bytes(MIB))
        with trio.fail_after(5):
            await visit.entered.wait()
            while visit.received < MIB:
                await wait_all_tasks_blocked()
        await client.close()
        await visit.gone()


def json_app() -> App:
    app = App("json")
    install_fallbacks(app)

    @app.post("/")
    async def length() -> dict[str, int]:
        return {"length": len(await read_json(request, LIMIT))}

    return app


@pytest.mark.parametrize(
    ("size", "status", "body"),
    [
        (0, 400, b'{"error": "missing request body"}'),
        (1, 200, b'{"length":1}\n'),
        (LIMIT, 200, b'{"length":100000}\n'),
        (LIMIT + 1, 413, b'{"error": "request body too large: the limit is 100000 bytes"}'),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_whole_body_has_a_limit(size: int, status: int, body: bytes, chunked: bool) -> None:
    data = bytes(size)
    async with serving(json_app()) as server, await server.connect() as client:
        if chunked:
            parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:7], data[7:]) if part)
            await client.send(get("/", "Transfer-Encoding: chunked", method="POST") + parts + b"0\r\n\r\n")
        else:
            await client.send(post("/", data))
        answer = await client.response()
        assert (answer.status, answer.body) == (status, body)


async def test_a_declared_length_beyond_the_limit_is_refused_without_reading() -> None:
    async with serving(json_app()) as server, await server.connect() as client:
        await client.send(get("/", "Content-Length: 1000000000000", method="POST"))
        answer = await client.response()
        assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_awaiting_a_body_without_a_limit_is_an_error_of_the_route() -> None:
    app = App("careless")

    @app.post("/")
    async def careless() -> bytes:
        with pytest.raises(TypeError, match="no size limit"):
            await request.get_data()
        return b"fine"

    async with serving(app) as server, await server.connect() as client:
        await client.send(post("/", b"1"))
        assert (await client.response()).body == b"fine"
