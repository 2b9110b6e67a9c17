"""Calls against a scripted server: what a child may do wrong, and what is sent to it."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from tests.runners.contract_suite import read_all
from trio_ollama.runners.contract import Exit, RunnerDiedError, RunnerRefusedError
from trio_ollama.runners.llama_server.calls import BUSY_RETRIES, ChildCalls, StreamingCall
from trio_ollama.runners.llama_server.endpoint import Endpoint
from trio_ollama.runners.llama_server.log import SlotEvent

Handler = Callable[[trio.SocketStream], Awaitable[None]]

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(*events: str) -> bytes:
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"%x\r\n%s\r\n" % (len(body), body)


def answer(status: int, body: Any) -> bytes:
    raw = msgspec.json.encode(body)
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(raw), raw)


def saying(*parts: bytes) -> Handler:
    async def handler(stream: trio.SocketStream) -> None:
        for part in parts:
            await stream.send_all(part)

    return handler


class Child:
    """The scripted server and our calls to it."""

    def __init__(self, path: Path) -> None:
        self.requests: list[tuple[str, Any]] = []
        self.exit: Exit | None = None
        self.calls = ChildCalls(Endpoint(str(path)), self._autopsy)

    async def _autopsy(self) -> Exit | None:
        await trio.lowlevel.checkpoint()
        return self.exit

    async def play(self, listener: trio.SocketListener, handlers: list[Handler]) -> None:
        for handler in handlers:
            async with await listener.accept() as stream:
                await self._read_request(stream)
                await handler(stream)

    async def _read_request(self, stream: trio.SocketStream) -> None:
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += await stream.receive_some()
        head, _, body = raw.partition(b"\r\n\r\n")
        length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
        while len(body) < length:
            body += await stream.receive_some()
        self.requests.append((head.split(b" ")[1].decode(), msgspec.json.decode(body)))


@asynccontextmanager
async def child(tmp_path: Path, *handlers: Handler) -> AsyncGenerator[Child, None]:
    path = tmp_path / "x.sock"
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(str(path))
    sock.listen()
    made = Child(path)
    with trio.fail_after(20):
        async with trio.SocketListener(sock) as listener, trio.open_nursery() as nursery:
            made.calls.open(nursery)
            nursery.start_soon(made.play, listener, list(handlers))
            yield made
            nursery.cancel_scope.cancel()


async def test_generations_always_stream_and_report_progress(tmp_path: Path) -> None:
    for path in ("/completion", "/v1/chat/completions"):
        final = '{"stop":true}' if path == "/completion" else "[DONE]"
        async with child(tmp_path, saying(SSE, chunk(final), END)) as made:
            async with made.calls.stream(path, {"stream": False, "n_predict": 1}) as call:
                await read_all(call)
            assert made.requests == [(path, {"stream": True, "n_predict": 1, "return_progress": True})]
            assert call.settled.is_set()
        (tmp_path / "x.sock").unlink()


async def test_a_generation_cannot_be_asked_for(tmp_path: Path) -> None:
    async with child(tmp_path) as made:
        with pytest.raises(ValueError, match="has to be streamed"):
            await made.calls.ask("/completion", {})


async def test_all_events_of_one_read_come_together(tmp_path: Path) -> None:
    whole = SSE + chunk('{"content":"a"}', '{"content":"b"}') + chunk('{"content":"c"}')
    async with (
        child(tmp_path, saying(whole, chunk('{"stop":true}') + END)) as made,
        made.calls.stream("/completion", {}) as call,
    ):
        events = await call.receive()
        assert [event["content"] for event in events[:3]] == ["a", "b", "c"]


async def test_a_plain_answer_is_one_event(tmp_path: Path) -> None:
    """So that embeddings can be streamed, too, and confirm that they have stopped."""
    async with child(tmp_path, saying(answer(200, {"data": [1]}))) as made:
        async with made.calls.stream("/v1/embeddings", {"input": "x"}) as call:
            assert await call.receive() == [{"data": [1]}]
            assert await call.receive() == []
        assert made.requests == [("/v1/embeddings", {"input": "x"})]
        assert call.settled.is_set()


async def test_a_busy_child_is_asked_again(tmp_path: Path) -> None:
    """R56."""
    busy = saying(answer(503, {"error": {"message": "no slot available", "code": 503}}))
    async with child(tmp_path, busy, busy, saying(SSE, chunk('{"stop":true}'), END)) as made:
        async with made.calls.stream("/completion", {}) as call:
            assert await call.receive() == [{"stop": True}]
        assert len(made.requests) == 3


async def test_a_child_that_stays_busy(tmp_path: Path) -> None:
    busy = saying(answer(503, {"error": {"message": "no slot available", "code": 503}}))
    async with child(tmp_path, *[busy] * (BUSY_RETRIES + 1)) as made:
        call = made.calls.stream("/completion", {})
        with pytest.raises(RunnerRefusedError, match="no slot available") as refused:
            await call.__aenter__()
        assert refused.value.status == 503
        assert call.settled.is_set()
        assert len(made.requests) == BUSY_RETRIES + 1


async def test_an_error_event_comes_after_those_before_it(tmp_path: Path) -> None:
    error = '{"error":{"code":400,"message":"bad","type":"invalid_request_error"}}'
    async with child(tmp_path, saying(SSE + chunk('{"content":"a"}', error) + END)) as made:
        async with made.calls.stream("/completion", {}) as call:
            assert await call.receive() == [{"content": "a"}]
            for _ in range(2):
                with pytest.raises(RunnerRefusedError, match=r"^bad$") as refused:
                    await call.receive()
            assert (refused.value.status, refused.value.kind) == (400, "invalid_request_error")
        assert call.settled.is_set()


@pytest.mark.parametrize(
    "parts",
    [
        (SSE, chunk('{"content":"a"}')),
        (SSE, chunk('{"content":"a"}')[:-9]),
        (SSE, chunk('{"content":"a"}'), END),
        (SSE, chunk("{nonsense")),
        (SSE, b"nonsense\r\n"),
        (SSE, END),
    ],
    ids=["no-end", "cut-event", "no-terminal-event", "bad-event", "bad-chunk", "nothing"],
)
async def test_a_stream_that_breaks_off(tmp_path: Path, parts: tuple[bytes, ...]) -> None:
    async with child(tmp_path, saying(*parts)) as made:
        call = made.calls.stream("/completion", {})
        with pytest.raises(RunnerDiedError, match=r"^an error was encountered while running the model: "):
            await read_to_the_end(call)
        await call.settled.wait()


async def read_to_the_end(call: StreamingCall) -> None:
    async with call:
        await read_all(call)


async def test_the_last_words_of_a_dead_child_are_told(tmp_path: Path) -> None:
    async with child(tmp_path, saying(SSE)) as made:
        made.exit = Exit(-6, ("CUDA error: out of memory",))
        async with made.calls.stream("/completion", {}) as call:
            with pytest.raises(RunnerDiedError, match=r": CUDA error: out of memory$") as died:
                await call.receive()
        assert died.value.out_of_memory


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\n"])
async def test_a_child_that_hangs_up_before_the_head(tmp_path: Path, part: bytes) -> None:
    async with child(tmp_path, saying(part)) as made:
        made.exit = Exit(1, ("error: x",))
        with pytest.raises(
            RunnerDiedError, match=r"unexpectedly stopped, .*logs for details: exit status 1: error: x$"
        ):
            await made.calls.ask("/tokenize", {})


async def test_no_server_at_all(tmp_path: Path) -> None:
    made = Child(tmp_path / "nobody.sock")
    call = made.calls.stream("/completion", {})
    with pytest.raises(RunnerDiedError, match=r"^model runner has unexpectedly stopped, .* for details$"):
        await call.__aenter__()
    assert call.settled.is_set()


async def test_a_call_cancelled_before_its_head_settles_when_the_child_hangs_up(tmp_path: Path) -> None:
    """It was queued in the child: the manager's `settled` is all that is left of it (R08)."""
    noticed, may_close = trio.Event(), trio.Event()

    async def queued(stream: trio.SocketStream) -> None:
        assert await stream.receive_some() == b""  # how the server sees that the client has gone
        noticed.set()
        await may_close.wait()

    async with child(tmp_path, queued) as made:
        call = made.calls.stream("/completion", {})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.__aenter__)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
        await noticed.wait()
        assert not call.settled.is_set()
        may_close.set()
        await call.settled.wait()


async def test_a_call_given_up_in_its_prompt_settles_with_its_slot(tmp_path: Path) -> None:
    """The hang-up tells that the child knows; the slot is free only after the running batch."""

    async def prompt(stream: trio.SocketStream) -> None:
        await stream.send_all(SSE)
        assert await stream.receive_some() == b""

    async with child(tmp_path, prompt) as made:
        made.calls.slots.read([SlotEvent(0, busy=True)])
        async with made.calls.stream("/completion", {}) as call:
            pass
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not call.settled.is_set()
        made.calls.slots.read([SlotEvent(0, busy=False)])
        assert call.settled.is_set()


async def test_what_the_child_still_writes_to_a_given_up_call_is_read(tmp_path: Path) -> None:
    """A child that blocks in a write would not notice that nobody listens."""
    sent = trio.Event()

    async def writing(stream: trio.SocketStream) -> None:
        await stream.send_all(SSE)
        await stream.send_all(chunk('{"content":"a"}') * 100_000)
        sent.set()

    async with child(tmp_path, writing) as made:
        async with made.calls.stream("/completion", {}) as call:
            pass
        await sent.wait()
        await call.settled.wait()


async def test_the_end_of_the_child_settles_what_lingers(tmp_path: Path) -> None:
    async def stuck(_: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with child(tmp_path, stuck) as made:
        call = made.calls.stream("/completion", {})
        with trio.move_on_after(0.1):
            await call.__aenter__()
        assert not call.settled.is_set()
        made.calls.close()
        assert call.settled.is_set()


async def test_a_full_backlog_is_waited_for(tmp_path: Path) -> None:
    """More connections at once than the child's queue holds, as with many short calls."""
    path = tmp_path / "full.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.setblocking(False)
        connections: list[trio.SocketStream] = []

        async def connect() -> None:
            connections.append(await Endpoint(str(path)).connect())

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(connect)
                await trio.testing.wait_all_tasks_blocked(0.0005)
                accepted = []
                while len(accepted) < 8:
                    try:
                        accepted.append(listener.accept()[0])
                    except BlockingIOError:
                        await trio.sleep(0.005)
        for stream in connections:
            await stream.aclose()
        for sock in accepted:
            sock.close()
