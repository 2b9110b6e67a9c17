"""/v1/responses: what is answered."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events
from trio_ollama.runners.contract import RunnerDiedError, RunnerRefusedError

from .conftest import Daemon

PATH = "/v1/responses"
ASK: dict[str, Any] = {"model": "tiny", "input": "hi"}
STREAM = ASK | {"stream": True}
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 10,
}
CALL = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
SPACE = {"type": "namespace", "name": "ns", "tools": [TOOL | {"name": "g"}]}


def play(daemon: Daemon, *batches: Any) -> None:
    daemon.scheduler.script = lambda path, body: batches


def reasoning(text: str, status: str = "completed") -> dict[str, Any]:
    if not text:
        return {"type": "reasoning", "status": status, "summary": []}
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "status": status, "summary": summary, "encrypted_content": text}


def part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message(text: str | None, status: str = "completed") -> dict[str, Any]:
    content = [] if text is None else [part(text)]
    return {"type": "message", "status": status, "role": "assistant", "content": content}


def call(call_id: str, arguments: str = '{"b":1,"a":2}', status: str = "completed", **named: str) -> dict[str, Any]:
    named = named or {"name": "f"}
    return {"type": "function_call", "status": status, "call_id": call_id, "arguments": arguments, **named}


def without_ids(value: Any) -> Any:
    """Ids are random: each is checked for its shape, and left out."""
    if isinstance(value, list):
        return list(map(without_ids, value))
    if not isinstance(value, dict):
        return value
    for name in ("id", "item_id"):
        if name in value:
            assert re.fullmatch(r"(resp|rs|msg|fc)_[0-9a-f]{24}", value[name])
    return {name: without_ids(item) for name, item in value.items() if name not in ("id", "item_id")}


async def test_one_object(daemon: Daemon) -> None:
    play(daemon, [*chat_events("h", "m", thinking=True), *chat_events("ye", "s"), chat_end()])
    response = (await daemon.post(PATH, ASK | {"max_output_tokens": 9, "instructions": "be"})).json
    assert response.pop("id").startswith("resp_")
    assert response.pop("created_at") > 1_700_000_000
    assert without_ids(response) == {
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "previous_response_id": None,
        "store": False,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "model": "tiny",
        "instructions": "be",
        "max_output_tokens": 9,
        "metadata": {},
        "reasoning": {"effort": None, "summary": None},
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tools": [],
        "top_p": 1.0,
        "truncation": "auto",
        "output": [reasoning("hm"), message("yes")],
        "usage": USAGE,
    }


async def test_a_stream(daemon: Daemon) -> None:
    last = [chat_end("tool_calls", tool_calls=[CALL, CALL | {"index": 1, "id": "y"}])]
    play(daemon, chat_events("h", "m", thinking=True), chat_events("ye", "s"), last)
    answer = await daemon.post(PATH, STREAM | {"model": "thinker", "tools": [TOOL]})
    assert answer.headers["content-type"].partition(";")[0] == "text/event-stream"
    assert "[DONE]" not in answer.text
    events = answer.named_events
    assert [event.pop("sequence_number") for event in events] == list(range(len(events)))
    created, under_way, *between, completed = events
    for event, kind in ((created, "response.created"), (under_way, "response.in_progress")):
        assert event["type"] == kind
        response = event["response"]
        assert (response["status"], response["output"], response["usage"]) == ("in_progress", [], None)
    texts = {"output_index": 1, "content_index": 0}
    thoughts = {"output_index": 0, "summary_index": 0}
    assert without_ids(between) == [
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning("", "in_progress")},
        {"type": "response.reasoning_summary_text.delta", **thoughts, "delta": "h"},
        {"type": "response.reasoning_summary_text.delta", **thoughts, "delta": "m"},
        {"type": "response.reasoning_summary_text.done", **thoughts, "text": "hm"},
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning("hm")},
        {"type": "response.output_item.added", "output_index": 1, "item": message(None, "in_progress")},
        {"type": "response.content_part.added", **texts, "part": part("")},
        {"type": "response.output_text.delta", **texts, "delta": "ye", "logprobs": []},
        {"type": "response.output_text.delta", **texts, "delta": "s", "logprobs": []},
        {"type": "response.output_text.done", **texts, "text": "yes", "logprobs": []},
        {"type": "response.content_part.done", **texts, "part": part("yes")},
        {"type": "response.output_item.done", "output_index": 1, "item": message("yes")},
        *called(2, "x"),
        *called(3, "y"),
    ]
    assert completed["type"] == "response.completed"
    response = completed["response"]
    assert (response["id"], response["status"], response["usage"]) == (created["response"]["id"], "completed", USAGE)
    assert without_ids(response["output"]) == [reasoning("hm"), message("yes"), call("x"), call("y")]
    ids = [item["id"] for item in response["output"]]
    assert [event["item"]["id"] for event in between if event["type"] == "response.output_item.added"] == ids
    assert [event["item"]["id"] for event in between if event["type"] == "response.output_item.done"] == ids
    assert all(event["item_id"] == ids[event["output_index"]] for event in between if "item_id" in event)
    assert len(set(ids)) == 4


def called(index: int, call_id: str) -> list[dict[str, Any]]:
    arguments = '{"b":1,"a":2}'
    return [
        {"type": "response.output_item.added", "output_index": index, "item": call(call_id, "", "in_progress")},
        {"type": "response.function_call_arguments.delta", "output_index": index, "delta": arguments},
        {"type": "response.function_call_arguments.done", "output_index": index, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": index, "item": call(call_id)},
    ]


SCRIPTS = {
    "text": ([*chat_events("a", "b"), chat_end()], [message("ab")]),
    "nothing": ([chat_end()], [message("")]),
    "thoughts": ([*chat_events("a", thinking=True), chat_end()], [reasoning("a"), message("")]),
    "a call": ([chat_end("tool_calls", tool_calls=[CALL])], [call("x")]),
    "text and a call": ([*chat_events("a"), chat_end("tool_calls", tool_calls=[CALL])], [message("a"), call("x")]),
    "turns": (
        [*chat_events("a"), *chat_events("b", thinking=True), *chat_events("c"), chat_end()],
        [message("a"), reasoning("b"), message("c")],
    ),
}


@pytest.mark.parametrize("kind", SCRIPTS)
async def test_the_streams_last_event_is_the_one_object(daemon: Daemon, kind: str) -> None:
    script, output = SCRIPTS[kind]
    play(daemon, script)
    whole = (await daemon.post(PATH, ASK)).json
    last = (await daemon.post(PATH, STREAM)).named_events[-1]["response"]
    assert without_ids(whole["output"]) == without_ids(last["output"]) == output
    for response in (whole, last):
        del response["id"], response["created_at"], response["output"]
    assert whole == last


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_was_cut_says_so(daemon: Daemon, stream: bool) -> None:
    play(daemon, [*chat_events("a"), chat_end("length")])
    answer = await daemon.post(PATH, ASK | {"stream": stream})
    response = answer.named_events[-1]["response"] if stream else answer.json
    assert response["status"] == "completed"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_a_namespace_is_told_apart(daemon: Daemon) -> None:
    function = {"name": "ns.g", "arguments": "{}"}
    play(daemon, [chat_end("tool_calls", tool_calls=[CALL | {"function": function}])])
    answer = await daemon.post(PATH, ASK | {"model": "thinker", "tools": [TOOL, SPACE]})
    (item,) = answer.json["output"]
    assert without_ids(item) == call("x", "{}", name="g", namespace="ns")


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (
            RunnerDiedError("signal SIGKILL"),
            {
                "code": "server_error",
                "message": "an error was encountered while running the model: signal SIGKILL",
            },
        ),
        (RunnerRefusedError(400, "no"), {"code": "invalid_prompt", "message": "no"}),
    ],
)
async def test_an_error_in_the_stream(daemon: Daemon, trouble: Exception, error: Any) -> None:
    play(daemon, chat_events("hm", thinking=True), chat_events("a"), trouble)
    events = (await daemon.post(PATH, STREAM)).named_events
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["sequence_number"] == len(events) - 1
    response = events[-1]["response"]
    assert (response["status"], response["error"]) == ("failed", error)
    assert without_ids(response["output"]) == [reasoning("hm"), message("a", "incomplete")]


async def test_an_error_of_an_answer_that_is_not_streamed(daemon: Daemon) -> None:
    play(daemon, chat_events("a"), RunnerDiedError("signal SIGKILL"))
    answer = await daemon.post(PATH, ASK)
    assert (answer.status, answer.json["error"]["type"]) == (500, "api_error")
