"""How a streamed response treats its source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing
from quart import Response

from tests.support.serving import get, serving
from trio_ollama.server.asgi import App, request_stack
from trio_ollama.server.streaming import EVENT_STREAM, NDJSON, stream_response


class Listed:
    """A source that gives these chunks, then raises or ends; says how often it was closed."""

    def __init__(self, *chunks: bytes, error: Exception | None = None) -> None:
        self.chunks: Iterator[bytes] = iter(chunks)
        self.error = error
        self.ended = False
        self.closed = 0

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        assert not self.ended, "asked again after the end"
        chunk = next(self.chunks, b"")
        if not chunk and self.error is not None:
            raise self.error
        self.ended = not chunk
        return chunk

    def close(self) -> None:
        self.closed += 1


def streaming_app(source: Listed, content_type: str = NDJSON) -> App:
    app = App("streaming")

    @app.get("/")
    async def stream() -> Response:
        return await stream_response(source, content_type)

    @app.errorhandler(KeyError)
    async def refuse(error: KeyError) -> tuple[str, int]:
        return "no such key", 404

    return app


@pytest.mark.parametrize("content_type", [NDJSON, EVENT_STREAM])
async def test_chunks_arrive_as_they_are(content_type: str) -> None:
    source = Listed(b"one\n", b"two\n")
    async with serving(streaming_app(source, content_type)) as server, await server.connect() as client:
        await client.send(get("/"))
        head = await client.until(b"\r\n\r\n")
        assert f"content-type: {content_type}\r\n".encode() in head
        assert await client.until(b"0\r\n\r\n") == b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"
        assert source.closed


async def test_the_source_is_closed_before_the_client_sees_the_end() -> None:
    source = Listed(b"one\n")
    closed: list[bool] = []
    app = streaming_app(source)

    async def spy(scope: object, receive: object, send: object) -> None:
        async def sending(message: dict[str, object]) -> None:
            if message["type"] == "http.response.body" and not message["more_body"]:
                closed.append(source.closed > 0)
            await send(message)  # type: ignore[operator]

        await app(scope, receive, sending)  # type: ignore[arg-type]

    async with serving(spy) as server, await server.connect() as client:
        await client.send(get("/"))
        await client.until(b"0\r\n\r\n")
    assert closed == [True]


async def test_an_empty_stream_is_an_empty_response() -> None:
    response = await streaming_app(Listed()).test_client().get("/")
    assert (response.status_code, await response.get_data()) == (200, b"")


async def test_an_error_before_the_first_chunk_has_a_status_and_closes_the_source() -> None:
    source = Listed(error=KeyError("x"))
    response = await streaming_app(source).test_client().get("/")
    assert (response.status_code, await response.get_data()) == (404, b"no such key")
    assert source.closed


async def test_the_stack_unwinds_in_reverse_after_the_response() -> None:
    order: list[str] = []
    app = App("stack")

    @app.get("/")
    async def view() -> str:
        request_stack().callback(order.append, "first")
        request_stack().callback(order.append, "second")
        return "x"

    await app.test_client().get("/")
    assert order == ["second", "first"]


async def test_a_client_that_goes_after_its_response_cancels_no_cleanup(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trio_ollama.access")
    app = App("cleanup")
    go, done = trio.Event(), trio.Event()

    async def clean_up() -> None:
        await go.wait()
        done.set()

    @app.get("/")
    async def view() -> str:
        request_stack().push_async_callback(clean_up)
        return "x"

    async with serving(app) as server, await server.connect() as client:
        await client.send(get("/"))
        assert (await client.response()).body == b"x"
        await client.close()
        await trio.testing.wait_all_tasks_blocked(0.02)
        go.set()
        with trio.fail_after(1):
            await done.wait()
    assert " 200 " in caplog.text


async def test_an_error_beside_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = App("mixed")
    entered = trio.Event()

    async def fail() -> None:
        try:
            entered.set()
            await trio.sleep_forever()
        finally:
            raise RuntimeError("in the cleanup")

    @app.get("/")
    async def mixed() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()
        return "never"

    async with serving(app) as server, await server.connect() as client:
        await client.send(get("/"))
        await entered.wait()
        await client.close()
    assert "in the cleanup" in caplog.text
