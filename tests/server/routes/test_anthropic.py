"""/v1/messages: what is answered."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events
from tests.support.pictures import PNG
from trio_ollama.runners.contract import RunnerDiedError
from trio_ollama.scheduler import QueueFullError

from .conftest import AddModel, Daemon

PATH = "/v1/messages"
CHAT: dict[str, Any] = {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
STREAM = CHAT | {"stream": True}
USAGE = {"input_tokens": 7, "output_tokens": 3}
CALL = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def play(daemon: Daemon, *batches: Any) -> None:
    daemon.scheduler.script = lambda path, body: batches


async def test_one_object(daemon: Daemon) -> None:
    play(daemon, [*chat_events("hm", thinking=True), *chat_events("ye", "s"), chat_end()])
    answer = await daemon.post(PATH, CHAT)
    message = answer.json
    assert re.fullmatch(r"msg_[0-9a-f]{24}", message.pop("id"))
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "yes"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }
    assert re.fullmatch(r"req_[0-9a-f]{24}", answer.headers["request-id"])


async def test_a_stream(daemon: Daemon) -> None:
    progress = {"prompt_progress": {"total": 6, "processed": 6}, "choices": [{"delta": {}}]}
    last = [chat_end("tool_calls", tool_calls=[CALL, CALL | {"index": 1, "id": "y"}])]
    play(daemon, [progress], chat_events("h", "m", thinking=True), chat_events("ye", "s"), last)
    answer = await daemon.post(PATH, STREAM | {"model": "thinker", "tools": TOOLS})
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    begin, *events, delta, stop = answer.named_events
    message = begin["message"]
    assert begin["type"] == "message_start"
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "thinker",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 6, "output_tokens": 0},
    }
    assert events == [
        block(0, type="thinking", thinking="", signature=""),
        part(0, type="thinking_delta", thinking="h"),
        part(0, type="thinking_delta", thinking="m"),
        {"type": "content_block_stop", "index": 0},
        block(1, type="text", text=""),
        part(1, type="text_delta", text="ye"),
        part(1, type="text_delta", text="s"),
        {"type": "content_block_stop", "index": 1},
        block(2, type="tool_use", id="x", name="f", input={}),
        part(2, type="input_json_delta", partial_json='{"b":1,"a":2}'),
        {"type": "content_block_stop", "index": 2},
        block(3, type="tool_use", id="y", name="f", input={}),
        part(3, type="input_json_delta", partial_json='{"b":1,"a":2}'),
        {"type": "content_block_stop", "index": 3},
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": USAGE,
    }
    assert stop == {"type": "message_stop"}


def block(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": fields}


def part(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


async def test_thoughts_and_text_in_turns_are_blocks_of_their_own(daemon: Daemon) -> None:
    both = chat_events("b")[0]
    both["choices"][0]["delta"]["reasoning_content"] = "a"
    play(daemon, [both], [*chat_events("c", thinking=True), chat_end()])
    answer = await daemon.post(PATH, STREAM)
    starts = [event for event in answer.named_events if event["type"] == "content_block_start"]
    assert [(start["index"], start["content_block"]["type"]) for start in starts] == [
        (0, "thinking"),
        (1, "text"),
        (2, "thinking"),
    ]
    stops = [event["index"] for event in answer.named_events if event["type"] == "content_block_stop"]
    assert stops == [0, 1, 2]


async def test_the_prompt_is_guessed_where_the_runner_has_not_told(daemon: Daemon) -> None:
    answer = await daemon.post(PATH, STREAM | {"messages": [{"role": "user", "content": "x" * 40}]})
    assert answer.named_events[0]["message"]["usage"]["input_tokens"] == 10


async def test_an_empty_answer(daemon: Daemon) -> None:
    play(daemon, [chat_end()])
    assert (await daemon.post(PATH, CHAT)).json["content"] == []
    kinds = [event["type"] for event in (await daemon.post(PATH, STREAM)).named_events]
    assert kinds == ["message_start", "message_delta", "message_stop"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (chat_end("stop"), "end_turn"),
        (chat_end("length"), "max_tokens"),
        (chat_end("tool_calls", tool_calls=[CALL]), "tool_use"),
        (chat_end("length", tool_calls=[CALL]), "tool_use"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_reasons(daemon: Daemon, end: Any, reason: str, stream: bool) -> None:
    play(daemon, [*chat_events("a"), end])
    answer = await daemon.post(PATH, CHAT | {"stream": stream})
    said = answer.named_events[-2]["delta"] if stream else answer.json
    assert said["stop_reason"] == reason


async def test_calls_of_tools_in_one_object(daemon: Daemon) -> None:
    play(daemon, [chat_end("tool_calls", tool_calls=[CALL])])
    answer = await daemon.post(PATH, CHAT | {"model": "thinker", "tools": TOOLS})
    assert answer.json["content"] == [{"type": "tool_use", "id": "x", "name": "f", "input": {"b": 1, "a": 2}}]
    assert list(answer.json["content"][0]["input"]) == ["b", "a"]


async def test_an_error_in_the_stream(daemon: Daemon) -> None:
    play(daemon, chat_events("a"), RunnerDiedError("signal SIGKILL"))
    answer = await daemon.post(PATH, STREAM)
    text = "an error was encountered while running the model: signal SIGKILL"
    assert answer.named_events[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": text},
        "request_id": answer.headers["request-id"],
    }
    assert "message_stop" not in answer.text


async def test_a_full_queue(daemon: Daemon) -> None:
    daemon.scheduler.refusal = QueueFullError()
    answer = await daemon.post(PATH, CHAT)
    text = "server busy, please try again.  maximum pending requests exceeded"
    assert answer.status == 503
    assert answer.json == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": text},
        "request_id": answer.headers["request-id"],
    }


async def test_no_two_requests_have_the_same_id(daemon: Daemon) -> None:
    ids = [(await daemon.post(PATH, body)).headers["request-id"] for body in (CHAT, CHAT, STREAM, {}, {})]
    assert len(set(ids)) == 5


def renders(daemon: Daemon) -> None:
    """A prompt of one character for each message and tool, a token for each character."""

    def render(body: Any) -> Any:
        return {"prompt": "m" * len(body["messages"]) + "t" * len(body.get("tools", ()))}

    daemon.scheduler.answers["/apply-template"] = render
    daemon.scheduler.answers["/tokenize"] = lambda body: {"tokens": list(range(len(body["content"])))}


async def test_count_tokens(daemon: Daemon) -> None:
    renders(daemon)
    body = {"model": "thinker", "messages": CHAT["messages"], "system": "S", "tools": TOOLS}
    answer = await daemon.post(f"{PATH}/count_tokens", body)
    assert (answer.status, answer.json) == (200, {"input_tokens": 3})
    assert answer.headers["request-id"].startswith("req_")
    render, tokens = (call[1] for call in daemon.scheduler.calls)
    assert [message["role"] for message in render["messages"]] == ["system", "user"]
    assert render["chat_template_kwargs"] == {"enable_thinking": True}
    assert tokens["add_special"]
    (demand,) = daemon.scheduler.demands
    assert not demand.slot
    assert demand.keep_alive is None


async def test_an_image_counts(daemon: Daemon, add_model: AddModel) -> None:
    add_model("seer", capabilities=("vision",))
    renders(daemon)
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    answer = await daemon.post(f"{PATH}/count_tokens", {"model": "seer", "messages": messages})
    assert answer.json == {"input_tokens": 1 + 768}


async def test_count_tokens_of_a_runner_that_dies(daemon: Daemon) -> None:
    daemon.scheduler.answers["/apply-template"] = lambda body: RunnerDiedError("signal SIGKILL")
    answer = await daemon.post(f"{PATH}/count_tokens", CHAT)
    assert (answer.status, answer.json["error"]) == (500, {"type": "api_error", "message": "signal SIGKILL"})
