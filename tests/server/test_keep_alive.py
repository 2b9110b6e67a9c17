"""When connections stay open, and when the server ends them."""

from __future__ import annotations

import pytest
import trio

from tests.support.serving import Visit, get, post, probe_app, serving
from trio_ollama.server.limits import Limits


async def test_connection_close_is_obeyed_at_once() -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        await client.send(get("/quick", "Connection: close"))
        assert (await client.rest(0.5)).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_http_1_0_ends_with_its_response() -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        await client.send(b"GET /quick HTTP/1.0\r\n\r\n")
        assert (await client.rest(0.5)).endswith(b'{"answer":"quick"}\n')


async def test_a_connection_serves_many_requests() -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        for _ in range(3):
            await client.send(get("/quick"))
            answer = await client.response()
            assert (answer.status, answer.reason) == (200, "OK")
            assert "connection" not in answer.headers


async def test_an_idle_connection_is_closed_in_time() -> None:
    limits = Limits(keep_alive=0.2, drain=0.1)
    async with serving(probe_app([Visit()]), limits) as server, await server.connect() as client:
        await client.send(get("/quick"))
        await client.response()
        assert await client.rest(0.2 + 0.5) == b""


async def test_a_connection_that_never_sends_a_whole_head_is_closed_in_time() -> None:
    limits = Limits(keep_alive=0.2, drain=0.1)
    async with serving(probe_app([Visit()]), limits) as server, await server.connect() as client:
        await client.send(b"GET /quick HTTP/1.1\r\n")
        assert await client.rest(0.2 + 0.5) == b""


async def test_a_running_request_is_not_idle() -> None:
    visit = Visit()
    limits = Limits(keep_alive=0.05, drain=0.1)
    async with serving(probe_app([visit]), limits) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await visit.entered.wait()
        await trio.sleep(0.2)  # longer than the idle limit: nothing may happen
        visit.go.set()
        assert (await client.response()).body == b"waited"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        await client.send(get("/quick") + get("/unknown") + get("/quick"))
        assert [(await client.response()).status for _ in range(3)] == [200, 404, 200]


async def test_a_body_in_pieces_and_the_next_request_behind_it() -> None:
    visit = Visit()
    visit.go.set()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        request = post("/upload", b"0123456789") + get("/quick")
        for start in range(0, len(request), 7):
            await client.send(request[start : start + 7])
            await trio.lowlevel.checkpoint()
        assert (await client.response()).body == b"10"
        assert (await client.response()).status == 200


async def test_head_has_no_body_and_keeps_the_connection() -> None:
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        await client.send(get("/quick", method="HEAD"))
        assert (await client.response(head_only=True)).headers["content-length"] == "19"
        await client.send(get("/quick"))
        assert (await client.response()).body == b'{"answer":"quick"}\n'


@pytest.mark.parametrize("size", [1_000, 3_000_000])
async def test_an_answer_before_the_end_of_the_body_reaches_its_client(size: int) -> None:
    """Closing with unread data would reset the connection and could take the answer with it."""
    async with serving(probe_app([Visit()])) as server, await server.connect() as client:
        request = post("/unknown", bytes(size))
        await client.send(request[:200])
        answer = await client.response()
        assert (answer.status, answer.headers["connection"]) == (404, "close")
        await client.send(request[200:])
        assert await client.rest() == b""
        await server.answers()


async def test_expect_100_continue() -> None:
    visit = Visit()
    visit.go.set()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/upload", "Content-Length: 5", "Expect: 100-continue", method="POST"))
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 \r\n\r\n"
        await client.send(b"12345")
        assert (await client.response()).body == b"5"


async def test_a_stream_longer_than_quarts_response_timeout_is_not_cut(autojump_clock: trio.testing.MockClock) -> None:
    """R77, in virtual time: ten minutes between two chunks."""
    from trio_ollama.server.asgi import App
    from trio_ollama.server.streaming import NDJSON, stream_response

    class Slow:
        left = 3

        async def receive(self) -> bytes:
            self.left -= 1
            await trio.sleep(600)
            return b"x" * (self.left > 0)

        def close(self) -> None: ...

    app = App("slow")

    @app.get("/")
    async def slow() -> object:
        return await stream_response(Slow(), NDJSON)

    response = await app.test_client().get("/")
    assert await response.get_data() == b"xx"
    assert trio.current_time() >= 1_800
