"""R75: whatever happens to the runner, a stream ends with exactly one last object, and the slot is free by then."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.support.asgi_client import Answer, send
from tests.support.endings import NATIVE, ending
from tests.support.fake_scheduler import Batch, chat_end, chat_events, completion_events
from trio_ollama.runners.contract import RunnerDiedError, RunnerRefusedError
from trio_ollama.scheduler import ForcedStopError, QueueFullError

from .conftest import Daemon

MESSAGES = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/api/chat", {"model": "tiny", "messages": MESSAGES}),
    "generate": ("/api/generate", {"model": "tiny", "prompt": "hi"}),
    "raw": ("/api/generate", {"model": "tiny", "prompt": "hi", "raw": True}),
    "openai": ("/v1/chat/completions", {"model": "tiny", "messages": MESSAGES, "stream": True}),
    "completions": ("/v1/completions", {"model": "tiny", "prompt": "hi", "stream": True}),
    "responses": ("/v1/responses", {"model": "tiny", "input": "hi", "stream": True}),
    "anthropic": ("/v1/messages", {"model": "tiny", "max_tokens": 9, "messages": MESSAGES, "stream": True}),
}
MID_STREAM = "an error was encountered while running the model: "

DIED = RunnerDiedError(MID_STREAM + "signal SIGKILL")
OUT_OF_MEMORY = RunnerRefusedError(500, "failed to allocate compute buffers")
STOPPED = ForcedStopError("the model was stopped")


def tokens(kind: str, *texts: str) -> list[dict[str, Any]]:
    return completion_events(*texts)[:-1] if kind == "raw" else chat_events(*texts)


def play(daemon: Daemon, *batches: Batch | None) -> None:
    daemon.scheduler.script = lambda path, body: batches


def told(kind: str, answer: Answer) -> str:
    """The text of an error that is the whole answer."""
    error = answer.json["error"]
    text: str = error if kind in NATIVE else error["message"]
    return text


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ([DIED], DIED.args[0]),
        ([RunnerDiedError("exit status 1")], MID_STREAM + "exit status 1"),
        ([RunnerRefusedError(500, "no more")], "no more"),
        ([STOPPED], "the model was stopped"),
        ([], MID_STREAM + "unexpected EOF"),
        ([KeyError("a bug")], "internal server error"),
    ],
)
async def test_trouble_after_the_first_token(daemon: Daemon, kind: str, trouble: list[Batch], text: str) -> None:
    play(daemon, tokens(kind, "a"), *trouble)
    answer = await daemon.post(*REQUESTS[kind])
    assert answer.status == 200
    assert ending(kind, answer) == ("error", text)
    assert daemon.scheduler.leases[0].released


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("trouble", "status", "text"),
    [
        (DIED, 500, DIED.args[0]),
        (RunnerRefusedError(400, "bad grammar"), 400, "bad grammar"),
        (STOPPED, 503, "the model was stopped"),
    ],
)
async def test_trouble_before_the_first_token_has_a_status(
    daemon: Daemon, kind: str, stream: bool, trouble: Exception, status: int, text: str
) -> None:
    progress: list[dict[str, Any]] = [{"prompt_progress": {"total": 5, "processed": 5}, "content": ""}]
    path, body = REQUESTS[kind]
    scripts: list[list[Batch] | Exception] = [[progress, trouble], trouble]
    for script in scripts:

        def say(path: str, body: object, script: list[Batch] | Exception = script) -> list[Batch] | Exception:
            return script

        daemon.scheduler.script = say
        answer = await daemon.post(path, body | {"stream": stream})
        assert (answer.status, told(kind, answer)) == (status, text)
        assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize(("trouble", "status"), [(DIED, 500), (STOPPED, 503)])
async def test_trouble_in_an_answer_that_is_not_streamed(
    daemon: Daemon, kind: str, trouble: Exception, status: int
) -> None:
    path, body = REQUESTS[kind]
    play(daemon, tokens(kind, "a", "b"), trouble)
    answer = await daemon.post(path, body | {"stream": False})
    assert (answer.status, told(kind, answer)) == (status, str(trouble))


@pytest.mark.parametrize("kind", ["generate", "raw", "completions"])
async def test_a_model_that_repeats_itself_is_ended(daemon: Daemon, kind: str) -> None:
    play(daemon, *([event] for event in tokens(kind, *["ha "] * 100)))
    answer = await daemon.post(*REQUESTS[kind])
    assert ending(kind, answer) == ("done", "length")
    if kind in NATIVE:
        assert len(answer.lines) == 32 + 1
        assert answer.lines[-1]["eval_count"] == 32


async def test_a_chat_may_repeat_itself(daemon: Daemon) -> None:
    play(daemon, [*chat_events(*["ha "] * 100), chat_end()])
    answer = await daemon.post(*REQUESTS["chat"])
    assert len(answer.lines) == 101


@pytest.mark.parametrize("kind", REQUESTS)
async def test_events_of_one_read_are_one_chunk(daemon: Daemon, kind: str) -> None:
    end = completion_events() if kind == "raw" else [chat_end()]
    play(daemon, tokens(kind, "a"), tokens(kind, "b", "c", "d"), [*tokens(kind, "e"), *end])
    answer = await daemon.post(*REQUESTS[kind])
    assert len(answer.chunks) == 3
    assert ending(kind, answer) == ("done", "stop")


@pytest.mark.parametrize("kind", REQUESTS)
async def test_what_comes_after_the_end_is_not_looked_at(daemon: Daemon, kind: str) -> None:
    end = completion_events("x") if kind == "raw" else [*chat_events("x"), chat_end()]
    play(daemon, [*end, *tokens(kind, "late")], DIED)
    assert ending(kind, await daemon.post(*REQUESTS[kind])) == ("done", "stop")


@pytest.mark.parametrize("kind", REQUESTS)
async def test_out_of_memory_is_the_schedulers_business_too(daemon: Daemon, kind: str) -> None:
    play(daemon, tokens(kind, "a"), OUT_OF_MEMORY)
    await daemon.post(*REQUESTS[kind])
    daemon.scheduler.script = lambda path, body: OUT_OF_MEMORY
    answer = await daemon.post(*REQUESTS[kind])
    assert answer.status == 500
    assert [lease.out_of_memory for lease in daemon.scheduler.leases] == [True, True]


@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_full_queue(daemon: Daemon, kind: str) -> None:
    daemon.scheduler.refusal = QueueFullError()
    answer = await daemon.post(*REQUESTS[kind])
    text = "server busy, please try again.  maximum pending requests exceeded"
    assert (answer.status, told(kind, answer)) == (503, text)


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_cancelled_request_holds_nothing(daemon: Daemon, kind: str, stream: bool, begun: bool) -> None:
    play(daemon, *([tokens(kind, "a")] if begun else []), None)
    path, body = REQUESTS[kind]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, daemon.app, "POST", path, body | {"stream": stream})
        await daemon.scheduler.waiting.wait()
        assert not daemon.scheduler.idle
        nursery.cancel_scope.cancel()
    assert daemon.scheduler.idle


async def test_the_slot_does_not_wait_for_a_client_that_reads_slowly(daemon: Daemon) -> None:
    """Before the last chunk is handed to the connection, the runner is free already."""
    play(daemon, chat_events("a"), [chat_end()])
    answer = Answer()
    seen: list[bool] = []

    class Watching(list[bytes]):
        def append(self, chunk: bytes) -> None:
            super().append(chunk)
            seen.append(daemon.scheduler.idle)

    answer.chunks = Watching()
    await daemon.post(*REQUESTS["chat"], answer=answer)
    assert seen == [False, True]
