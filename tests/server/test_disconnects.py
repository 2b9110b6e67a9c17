"""A client that leaves ends its request at once, whatever the request is doing (R72, R73, R76)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.serving import Client, Visit, get, post, probe_app, serving
from trio_ollama.server.limits import Limits

Leave = Callable[[Client], Awaitable[None]]
WAYS = pytest.mark.parametrize("leave", [Client.close, Client.reset, Client.half_close])


@WAYS
async def test_before_the_first_byte(leave: Leave) -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await visit.entered.wait()
        await leave(client)
        await visit.gone()
        await server.answers()


async def test_half_close_is_answered_by_the_end_of_the_connection() -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await visit.entered.wait()
        await client.half_close()
        assert await client.rest() == b""


@WAYS
async def test_during_an_idle_stream(leave: Leave) -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/stream"))
        await client.until(b'{"n": 1}\n')
        await wait_all_tasks_blocked()
        await leave(client)
        await visit.gone()


@WAYS
async def test_while_the_server_is_blocked_in_a_write(leave: Leave) -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect(receive_buffer=4096) as client:
        await client.send(get("/flood"))
        await visit.entered.wait()
        await wait_all_tasks_blocked(0.05)
        chunks = visit.chunks
        await leave(client)
        await visit.gone("closed")
        assert visit.chunks == chunks, "the source was asked for more although its client had left"


@pytest.mark.parametrize("extra", [get("/quick"), b"\r\n", b"x"], ids=["pipelined", "stray CRLF", "stray byte"])
@pytest.mark.parametrize("path", ["/wait", "/stream"])
async def test_behind_bytes_that_the_server_does_not_read_yet(path: str, extra: bytes) -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get(path) + extra)
        await visit.entered.wait()
        await wait_all_tasks_blocked()
        await client.send(extra)
        await wait_all_tasks_blocked()
        await client.close()
        await visit.gone()


async def test_a_pipelined_request_does_not_start_when_its_client_has_left() -> None:
    first, second = Visit(), Visit()
    async with serving(probe_app([first, second])) as server, await server.connect() as client:
        await client.send(get("/wait") + get("/wait"))
        await first.entered.wait()
        await client.close()
        await first.gone()
        await server.answers()
        assert not second.entered.is_set()


async def test_of_a_client_that_sends_too_much_ahead() -> None:
    visit = Visit()
    limits = Limits(drain=0.1, linger=0.1)
    async with serving(probe_app([visit]), limits) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await visit.entered.wait()
        with pytest.raises(trio.BrokenResourceError):  # read and thrown away for a moment, then reset
            await client.flood()
        await visit.gone()


@WAYS
async def test_in_the_second_request_of_a_connection(leave: Leave) -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/quick"))
        await client.response()
        await client.send(get("/wait"))
        await visit.entered.wait()
        await leave(client)
        await visit.gone()


@WAYS
async def test_in_the_middle_of_its_own_body(leave: Leave) -> None:
    visit = Visit()
    visit.go.set()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(post("/upload", b"0123456789")[:-5])
        await visit.entered.wait()
        await wait_all_tasks_blocked()
        assert visit.received == 5
        await leave(client)
        await visit.gone()


@WAYS
async def test_before_its_response_began(leave: Leave) -> None:
    """A generator would never have been started, its `finally` never run."""
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/late"))
        await visit.entered.wait()
        await leave(client)
        await visit.gone()


async def test_after_its_response_is_no_disconnect() -> None:
    visit = Visit()
    visit.go.set()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/stream"))
        await client.until(b"0\r\n\r\n")
        await visit.gone("done")


async def test_leaves_the_other_clients_alone() -> None:
    leaver, stayer = Visit(), Visit()
    async with serving(probe_app([leaver, stayer])) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await leaver.entered.wait()
        async with await server.connect() as other:
            await other.send(get("/wait"))
            await stayer.entered.wait()
            await client.reset()
            await leaver.gone()
            stayer.go.set()
            assert (await other.response()).body == b"waited"


async def test_is_logged_as_499(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trio_ollama.access")
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/wait?a=1"))
        await visit.entered.wait()
        await client.close()
        await visit.gone()
        await server.answers()
    lines = [record.getMessage().rsplit(" ", 1)[0] for record in caplog.records if record.name == "trio_ollama.access"]
    assert lines == ["GET /wait 499", "GET /quick 200"]
