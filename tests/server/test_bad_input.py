"""Whatever one client sends, it gets an answer that fits, and the server lives."""

from __future__ import annotations

import pytest
import trio

from tests.support.serving import Visit, get, post, probe_app, serving
from trio_ollama.server.limits import Limits

HOST = b"Host: localhost\r\n\r\n"
QUICK = b"GET /quick HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(
            QUICK + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + HOST + b"x",
            200,
            id="WebSocket upgrade and a byte",
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, id="HTTP/2 preface"),
        pytest.param(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\1\0\0\0\0\0\1x", 505, id="late h2 DATA"
        ),
        pytest.param(QUICK + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" + HOST, 200, id="h2c upgrade"),
        pytest.param(b"\x16\x03\x01\x02\0\1\0\r\n\r\n", 400, id="TLS"),
        pytest.param(b"garbage\r\n\r\n", 400, id="garbage"),
        pytest.param(b"POST /quick HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST + b"zz\r\n", 400, id="bad chunk"),
        pytest.param(QUICK + b"X: " + b"x" * 70_000 + b"\r\n" + HOST, 431, id="70 kB of headers"),
        pytest.param(QUICK + b"X: " + b"x" * 17_000 + b"\r\n" + HOST, 431, id="17 kB in one piece"),
        pytest.param(QUICK + b"X: " + b"x" * 16_000 + b"\r\n" + HOST, 200, id="16 kB"),
        pytest.param(QUICK + b"\r\n", 400, id="no Host"),
        pytest.param(QUICK + b"Host: a b..c\r\n\r\n", 200, id="strange Host"),
        pytest.param(QUICK + b"Content-Length: -1\r\n" + HOST, 400, id="negative length"),
        pytest.param(QUICK + b"Content-Length: 1\r\nContent-Length: 2\r\n" + HOST, 400, id="two lengths"),
        pytest.param(b"GET /\xff HTTP/1.1\r\n" + HOST, 400, id="non-ASCII target"),
        pytest.param(b"GET /%ff%00%0a HTTP/1.1\r\n" + HOST, 404, id="undecodable path"),
        pytest.param(b"GET ?a=1 HTTP/1.1\r\n" + HOST, 400, id="no path"),
        pytest.param(b"GET http://[bad/ HTTP/1.1\r\n" + HOST, 400, id="bad URL"),
        pytest.param(b"\r\n" + QUICK + HOST, 400, id="leading CRLF"),
        pytest.param(b"CONNECT example.com:443 HTTP/1.1\r\n" + HOST, 404, id="CONNECT"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n" + HOST, 404, id="OPTIONS *"),
        pytest.param(b"GET http://localhost/quick HTTP/1.1\r\n" + HOST, 200, id="absolute form"),
        pytest.param(b"BREW /quick HTTP/1.1\r\n" + HOST, 405, id="unknown method"),
    ],
)
async def test_gets_an_answer_and_the_server_lives(data: bytes, status: int) -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        await client.send(data)
        assert (await client.response()).status == status
        await server.answers()
        await client.close()
        await server.answers()


async def test_data_after_connection_close_ends_the_request() -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/wait", "Connection: close"))
        await visit.entered.wait()
        await client.send(b"more")
        await visit.gone()
        await server.answers()


async def test_a_bad_chunk_in_the_middle_of_an_upload() -> None:
    visit = Visit()
    visit.go.set()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/upload", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n")
        await visit.entered.wait()
        await client.send(b"zz\r\n")
        assert (await client.response()).status == 400
        await visit.gone()
        await server.answers()


async def test_an_error_of_the_connection_itself_ends_only_that(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from trio_ollama.server.protocol import Http1Protocol

    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await visit.entered.wait()
        with monkeypatch.context() as patch:

            async def fail(self: object, request: object) -> None:
                raise KeyError("a bug in the protocol")

            patch.setattr(Http1Protocol, "_begin", fail)
            async with await server.connect() as other:
                await other.send(get("/quick"))
                assert await other.rest() == b""
        assert "a bug in the protocol" in caplog.text
        visit.go.set()
        assert (await client.response()).body == b"waited"


async def test_an_error_of_a_route_is_a_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    app = probe_app([Visit()])

    @app.get("/bug")
    async def bug() -> str:
        raise RuntimeError("secret")

    async with serving(app) as server, await server.connect() as client:
        await client.send(get("/bug"))
        answer = await client.response()
        assert (answer.status, answer.reason, answer.body) == (500, "Internal Server Error", b"")
        await client.send(get("/quick"))
        assert (await client.response()).status == 200
    assert "secret" in caplog.text


async def test_an_error_in_a_stream_breaks_it_off_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    from trio_ollama.server.streaming import NDJSON, stream_response

    class Broken:
        chunks = 1
        closed = False

        async def receive(self) -> bytes:
            await trio.lowlevel.checkpoint()
            if not self.chunks:
                raise RuntimeError("no more")
            self.chunks -= 1
            return b"one\n"

        def close(self) -> None:
            self.closed = True

    app = probe_app([Visit()])
    source = Broken()

    @app.get("/broken")
    async def broken() -> object:
        return await stream_response(source, NDJSON)

    async with serving(app) as server, await server.connect() as client:
        await client.send(get("/broken"))
        assert not (await client.rest()).endswith(b"0\r\n\r\n"), "a broken stream must not look complete"
        await server.answers()
    assert source.closed
    assert "no more" in caplog.text


async def test_too_many_connections_at_once_are_all_answered() -> None:
    async with serving(probe_app([Visit()]), Limits(drain=0.1)) as server, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(server.answers)


async def test_a_body_that_nobody_reads_ends_with_its_response() -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        await client.send(post("/quick", bytes(2_000_000)))
        assert (await client.response()).status == 405
        assert await client.rest() == b""
