"""What the access log says of a client that reads its response and goes."""

from __future__ import annotations

import logging

import pytest
import trio

from trio_ollama.server.exchange import Exchange


async def run_and_leave(headers: list[tuple[bytes, bytes]], caplog: pytest.LogCaptureFixture) -> str:
    """The log line of a request whose client leaves when it has got one body message, which is not the last one."""

    async def app(scope: object, receive: object, send: object) -> None:
        assert callable(send)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"all of it", "more_body": True})
        await trio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def respond(message: object) -> None:
        if isinstance(message, dict) and message.get("body"):
            exchange.leave("the client disconnected")
        await trio.lowlevel.checkpoint()

    async def write(piece: bytes) -> None:
        exchange.leave("the client disconnected")
        await trio.lowlevel.checkpoint()

    exchange = Exchange({"method": "GET", "raw_path": b"/api/ps"}, respond, write)
    with caplog.at_level(logging.INFO, "trio_ollama.access"):
        await exchange.run(app)
    (record,) = caplog.records
    return record.getMessage()


async def test_a_client_that_leaves_with_its_whole_response_was_served(caplog: pytest.LogCaptureFixture) -> None:
    assert "GET /api/ps 200" in await run_and_leave([(b"content-length", b"9")], caplog)


async def test_a_client_that_leaves_before_the_end_was_not(caplog: pytest.LogCaptureFixture) -> None:
    assert "GET /api/ps 499" in await run_and_leave([(b"content-length", b"10")], caplog)


async def test_without_a_length_only_the_last_message_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    assert "GET /api/ps 499" in await run_and_leave([], caplog)
