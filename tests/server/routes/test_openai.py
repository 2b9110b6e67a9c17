"""/v1/chat/completions and /v1/models."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events
from trio_ollama.runners.contract import RunnerDiedError

from .conftest import AddModel, Daemon, nothing_started

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "tiny", "messages": [USER]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


async def test_one_object(daemon: Daemon) -> None:
    daemon.scheduler.script = lambda path, body: [[*chat_events("hm", thinking=True), *chat_events("yes"), chat_end()]]
    answer = (await daemon.post(PATH, CHAT)).json
    assert answer.pop("id").startswith("chatcmpl-")
    assert answer.pop("created") > 1_700_000_000
    message = {"role": "assistant", "content": "yes", "reasoning": "hm"}
    assert answer == {
        "object": "chat.completion",
        "model": "tiny",
        "system_fingerprint": "fp_ollama",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }


@pytest.mark.parametrize("usage", [True, False])
async def test_a_stream(daemon: Daemon, usage: bool) -> None:
    script = [chat_events("hm", thinking=True), [*chat_events("ye", "s"), chat_end("length")]]
    daemon.scheduler.script = lambda path, body: script
    answer = await daemon.post(PATH, CHAT | {"stream": True, "stream_options": {"include_usage": usage}})
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    *events, done = answer.events
    assert done == "[DONE]"
    assert len({(event["id"], event["created"], event["object"]) for event in events}) == 1
    assert events[0]["object"] == "chat.completion.chunk"
    if usage:
        last = events.pop()
        assert (last["choices"], last["usage"]) == ([], USAGE)
    choices = [event["choices"][0] for event in events]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "", "reasoning": "hm"},
        {"content": "ye"},
        {"content": "s"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]


async def test_thoughts_and_text_in_one_event_are_two_chunks(daemon: Daemon) -> None:
    event = chat_events("a")[0]
    event["choices"][0]["delta"]["reasoning_content"] = "b"
    daemon.scheduler.script = lambda path, body: [[event, chat_end()]]
    answer = await daemon.post(PATH, CHAT | {"stream": True})
    deltas = [event["choices"][0]["delta"] for event in answer.events[:-1]]
    assert deltas == [{"role": "assistant", "content": "", "reasoning": "b"}, {"content": "a"}, {}]


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_calls(daemon: Daemon, stream: bool) -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}
    daemon.scheduler.script = lambda path, body: [[chat_end("tool_calls", tool_calls=[call])]]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    answer = await daemon.post(PATH, CHAT | {"model": "thinker", "tools": tools, "stream": stream})
    function = {"name": "f", "arguments": '{"b":1,"a":2}'}
    calls = [{"id": "x", "index": 0, "type": "function", "function": function}]
    if stream:
        first, last = (event["choices"][0] for event in answer.events[:-1])
        assert first["delta"]["tool_calls"] == calls
        assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")
    else:
        (choice,) = answer.json["choices"]
        assert (choice["message"]["tool_calls"], choice["finish_reason"]) == (calls, "tool_calls")


async def test_an_error_in_the_stream(daemon: Daemon) -> None:
    daemon.scheduler.script = lambda path, body: [chat_events("a"), RunnerDiedError("signal SIGKILL")]
    answer = await daemon.post(PATH, CHAT | {"stream": True})
    text = "an error was encountered while running the model: signal SIGKILL"
    error = {"message": text, "type": "api_error", "param": None, "code": None}
    assert answer.events[-1] == {"error": error}


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        ({}, {"temperature": 1.0, "top_p": 1.0, "seed": -1}),
        ({"temperature": 0, "top_p": 0.5, "seed": 7}, {"temperature": 0.0, "top_p": 0.5, "seed": 7}),
        ({"max_tokens": 9}, {"n_predict": 9}),
        ({"max_completion_tokens": 8}, {"n_predict": 8}),
        ({"max_completion_tokens": 8, "max_tokens": 9}, {"n_predict": 8}),
        ({"max_completion_tokens": None, "max_tokens": 9}, {"n_predict": 9}),
        ({"stop": "#"}, {"stop": ["#"]}),
        ({"stop": ["#", "!"]}, {"stop": ["#", "!"]}),
        ({"frequency_penalty": 1, "presence_penalty": 0.5}, {"frequency_penalty": 1.0, "presence_penalty": 0.5}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_object"}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "schema", "schema": {"type": "array"}},
                }
            },
        ),
        ({"n": 3, "tool_choice": "auto", "logit_bias": {}, "user": "me", "keep_alive": 1}, {}),
    ],
)
async def test_what_the_runner_is_asked(daemon: Daemon, change: Any, sent: Any) -> None:
    assert (await daemon.post(PATH, CHAT | change)).status == 200
    body = daemon.scheduler.calls[0][1]
    assert {name: body[name] for name in sent} == sent
    assert ("response_format" in body) == ("response_format" in sent)
    assert daemon.scheduler.demands[0].keep_alive is None


@pytest.mark.parametrize(
    ("effort", "arguments"),
    [
        ("none", {"enable_thinking": False}),
        ("minimal", {"enable_thinking": True, "reasoning_effort": "low"}),
        ("ultra", {"enable_thinking": True, "reasoning_effort": "max"}),
        ("", {"enable_thinking": True}),
    ],
)
@pytest.mark.parametrize("old", [True, False])
async def test_effort(daemon: Daemon, effort: str, arguments: Any, old: bool) -> None:
    wanted = {"reasoning_effort": effort} if old else {"reasoning": {"effort": effort}}
    await daemon.post(PATH, CHAT | {"model": "thinker"} | wanted)
    assert daemon.scheduler.calls[0][1]["chat_template_kwargs"] == arguments


async def test_messages_in_parts(daemon: Daemon, add_model: AddModel) -> None:
    add_model("seer", capabilities=("vision",))
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "user", "content": [part("one"), {"type": "image_url", "image_url": f"data:image/png;base64,{png}"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    assert (await daemon.post(PATH, CHAT | {"model": "seer", "messages": messages})).status == 200
    text, image, assistant, tool = daemon.scheduler.calls[0][1]["messages"]
    assert text == {"role": "user", "content": "one"}
    assert image["content"] == [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}}]
    assert assistant["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x":1}'}
    assert tool == {"role": "tool", "content": "42", "name": "f", "tool_call_id": "c1"}


async def test_a_developers_words_are_the_systems(daemon: Daemon, add_model: AddModel) -> None:
    add_model("told", system="the model's own")
    messages = [{"role": "developer", "content": "do"}, {"role": "user", "content": "hi"}]
    assert (await daemon.post(PATH, CHAT | {"model": "told", "messages": messages})).status == 200
    assert daemon.scheduler.calls[0][1]["messages"] == [{"role": "system", "content": "do"}, messages[1]]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"messages": []}, "[] is too short - 'messages'"),
        ({"messages": [{"role": "user"}]}, "invalid message content type: <nil>"),
        ({"messages": [{"role": "user", "content": 1}]}, "invalid message content type: int"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "invalid message format"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
            "image URLs are not currently supported, please use base64 encoded data instead",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:text/plain,x"}]}]},
            "invalid image input",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "invalid tool call arguments",
        ),
        (
            {"reasoning_effort": "extreme"},
            'invalid reasoning value: "extreme" (must be "minimal", "low", "medium", "high", "xhigh", "ultra", '
            '"max", or "none")',
        ),
        ({"top_logprobs": 30}, "top_logprobs must be between 0 and 20"),
        ({"model": ""}, "model is required"),
        ({"model": "vectors"}, '"vectors" does not support chat'),
        ({"stream": "yes"}, 'field "stream": Expected `bool`, got `str`'),
    ],
)
async def test_refused(daemon: Daemon, change: Any, text: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(PATH, CHAT | change)
    error = {"message": text, "type": "invalid_request_error", "param": None, "code": None}
    assert (answer.status, answer.json) == (400, {"error": error})


async def test_logprobs(daemon: Daemon) -> None:
    (event,) = chat_events("hi")
    entry = {"token": "hi", "bytes": [104, 105], "logprob": -0.5}
    event["choices"][0]["logprobs"] = {"content": [entry | {"id": 1, "top_logprobs": []}]}
    daemon.scheduler.script = lambda path, body: [[event, chat_end()]]
    whole = await daemon.post(PATH, CHAT | {"logprobs": True})
    assert whole.json["choices"][0]["logprobs"] == {"content": [entry]}
    stream = await daemon.post(PATH, CHAT | {"logprobs": True, "stream": True})
    assert stream.events[0]["choices"][0]["logprobs"] == {"content": [entry]}


async def test_logprobs_of_thoughts(daemon: Daemon) -> None:
    (event,) = chat_events("hm", thinking=True)
    entry = {"token": "hm", "logprob": -0.5}
    event["choices"][0]["logprobs"] = {"content": [entry]}
    daemon.scheduler.script = lambda path, body: [[event, chat_end()]]
    stream = await daemon.post(PATH, CHAT | {"logprobs": True, "stream": True})
    assert stream.events[0]["choices"][0]["logprobs"] == {"content": [entry]}


async def test_models(daemon: Daemon) -> None:
    answer = (await daemon.send("GET", "/v1/models")).json
    assert answer["object"] == "list"
    assert {model["id"] for model in answer["data"]} >= {"tiny:latest", "bare:latest"}
    one = (await daemon.send("GET", "/v1/models/tiny")).json
    created = int(daemon.store.resolve("tiny").modified_at.timestamp())
    assert one == {"id": "tiny", "object": "model", "created": created, "owned_by": "library"}
