"""/v1/messages: what is understood of a request, and what is refused before anything is loaded."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from .conftest import AddModel, Daemon, nothing_started

PATH = "/v1/messages"
USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "tiny", "max_tokens": 9, "messages": [USER]}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
SHOWN = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}}
CALLED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def message(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def result(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "c1", "content": content, **more}


def tool(content: Any, name: str = "f") -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {"role": "tool", "content": content, "tool_call_id": "c1", **named}


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([USER], [USER]),
        ([message("user", text("a"), text("b"))], [{"role": "user", "content": "ab"}]),
        ([message("user")], [{"role": "user", "content": ""}]),
        ([message("user", text("look"), IMAGE)], [{"role": "user", "content": [text("look"), SHOWN]}]),
        ([message("user", {"type": "document", "source": {}}, text("a"))], [{"role": "user", "content": "a"}]),
        ([message("user", text("a") | {"cache_control": None})], [{"role": "user", "content": "a"}]),
        (
            [message("assistant", {"type": "thinking", "thinking": "hm", "signature": ""}, text("let me"), CALL)],
            [{"role": "assistant", "content": "let me", "tool_calls": [CALLED]}],
        ),
        (
            [message("assistant", CALL), message("user", text("so?"), result("42"))],
            [
                {"role": "assistant", "content": "", "tool_calls": [CALLED]},
                tool("42"),
                {"role": "user", "content": "so?"},
            ],
        ),
        ([message("user", result("42"))], [tool("42", name="")]),
        ([message("user", result([text("4"), text("2")], is_error=True))], [tool("42", name="")]),
        ([message("user", result())], [tool("", name="")]),
        (
            [message("user", result([text("seen"), IMAGE]))],
            [tool("seen", name=""), {"role": "user", "content": [SHOWN]}],
        ),
        (
            [
                message(
                    "assistant",
                    CALL | {"type": "server_tool_use"},
                    {"type": "web_search_tool_result", "tool_use_id": "c1", "content": [{"title": "T", "url": "U"}]},
                )
            ],
            [tool("- T: U"), {"role": "assistant", "content": "", "tool_calls": [CALLED]}],
        ),
    ],
)
async def test_messages(daemon: Daemon, add_model: AddModel, messages: Any, sent: Any) -> None:
    add_model("seer", capabilities=("vision",))
    assert (await daemon.post(PATH, CHAT | {"model": "seer", "messages": messages})).status == 200
    assert daemon.scheduler.calls[0][1]["messages"] == sent


@pytest.mark.parametrize("system", ["one two", [text("one "), text("two")]])
async def test_a_system_text_replaces_the_models_own(daemon: Daemon, add_model: AddModel, system: Any) -> None:
    add_model("mine", system="mine")
    await daemon.post(PATH, CHAT | {"model": "mine", "system": system})
    await daemon.post(PATH, CHAT | {"model": "mine"})
    first, second = (call[1]["messages"][0] for call in daemon.scheduler.calls)
    assert first == {"role": "system", "content": "one two"}
    assert second == {"role": "system", "content": "mine"}


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        ({}, {"n_predict": 9, "temperature": 0.25, "top_p": 0.9, "top_k": 40}),
        (
            {"temperature": 1, "top_p": 0.5, "top_k": 3, "max_tokens": 5},
            {"n_predict": 5, "temperature": 1.0, "top_p": 0.5, "top_k": 3},
        ),
        ({"stop_sequences": ["#", "!"]}, {"stop": ["#", "!"]}),
        ({"metadata": {"user_id": "me"}, "tool_choice": {"type": "any"}, "service_tier": "auto"}, {"n_predict": 9}),
        ({"MAX_TOKENS": 4}, {"n_predict": 4}),
    ],
)
async def test_what_the_runner_is_asked(daemon: Daemon, add_model: AddModel, change: Any, sent: Any) -> None:
    """Unlike OpenAI's, this dialect has no defaults of its own: the model's count."""
    add_model("cool", params={"temperature": 0.25})
    assert (await daemon.post(PATH, CHAT | {"model": "cool"} | change)).status == 200
    body = daemon.scheduler.calls[0][1]
    assert {name: body[name] for name in sent} == sent
    assert daemon.scheduler.demands[0].keep_alive is None


@pytest.mark.parametrize(
    ("given", "function"),
    [
        (
            {"name": "f", "description": "does", "input_schema": {"type": "object"}},
            {"name": "f", "description": "does", "parameters": {"type": "object"}},
        ),
        ({"name": "f", "type": "custom"}, {"name": "f", "parameters": {"type": "object", "properties": {}}}),
    ],
)
async def test_tools(daemon: Daemon, given: Any, function: Any) -> None:
    tools = [given, {"type": "web_search_20250305", "name": "web_search"}]
    assert (await daemon.post(PATH, CHAT | {"model": "thinker", "tools": tools})).status == 200
    assert daemon.scheduler.calls[0][1]["tools"] == [{"type": "function", "function": function}]


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ({}, {"enable_thinking": True}),
        ({"thinking": {"type": "enabled", "budget_tokens": 99}}, {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ({"thinking": {"type": "adaptive"}}, {"enable_thinking": True}),
        ({"output_config": {"effort": "low"}}, {"enable_thinking": True, "reasoning_effort": "low"}),
        ({"output_config": {"effort": "xhigh"}}, {"enable_thinking": True, "reasoning_effort": "high"}),
        ({"output_config": {"format": {}}}, {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}, {"enable_thinking": False}),
    ],
)
async def test_thinking(daemon: Daemon, change: Any, arguments: Any) -> None:
    await daemon.post(PATH, CHAT | {"model": "thinker"} | change)
    assert daemon.scheduler.calls[0][1]["chat_template_kwargs"] == arguments


@pytest.mark.parametrize("change", [{"thinking": {"type": "enabled"}}, {"output_config": {"effort": "high"}}])
async def test_a_model_that_cannot_think_is_not_asked_to(daemon: Daemon, change: Any) -> None:
    assert (await daemon.post(PATH, CHAT | change)).status == 200
    assert "chat_template_kwargs" not in daemon.scheduler.calls[0][1]


REFUSED = [
    ({"model": None}, "model is required"),
    ({"model": " "}, "model is required"),
    ({"messages": None}, "messages is required"),
    ({"messages": []}, "messages is required"),
    ({"messages": [{"role": "user"}]}, "messages[0].content must be a string or an array of blocks"),
    (
        {"messages": [USER, {"role": "user", "content": 1}]},
        "messages[1].content must be a string or an array of blocks",
    ),
    ({"messages": [message("user", "hi")]}, "messages[0].content[0] must be an object with a type"),
    ({"messages": [message("user", {"text": "hi"})]}, "messages[0].content[0] must be an object with a type"),
    (
        {"messages": [message("user", text("a"), {"type": "text", "text": 1})]},
        'messages[0].content[1]: field "text": Expected `str`, got `int`',
    ),
    (
        {"messages": [message("user", {"type": "text"})]},
        "messages[0].content[0]: Object missing required field `text`",
    ),
    (
        {"messages": [message("user", {"type": "image", "source": {"type": "url", "url": "http://x/y"}})]},
        "invalid image source type: url. Only base64 images are supported.",
    ),
    (
        {"messages": [message("user", {"type": "image", "source": {"type": "base64", "data": "?"}})]},
        'messages[0].content[0]: field "source.data": Invalid base64 encoded string',
    ),
    (
        {"messages": [message("user", {"type": "image", "source": {"type": "base64"}})]},
        "messages[0].content[0]: the image is empty",
    ),
    (
        {"messages": [message("assistant", CALL | {"id": ""})]},
        "messages[0].content[0]: tool_use block missing required 'id' field",
    ),
    (
        {"messages": [message("assistant", CALL | {"name": None})]},
        "messages[0].content[0]: tool_use block missing required 'name' field",
    ),
    (
        {"messages": [message("assistant", CALL | {"input": "{}"})]},
        'messages[0].content[0]: field "input": Expected `object`, got `str`',
    ),
    (
        {"messages": [message("user", result(7))]},
        "messages[0].content[0].content must be a string or an array of blocks",
    ),
    ({"system": 1}, "system must be a string or an array of blocks"),
    ({"tools": [{"name": "f"}, {"input_schema": {}}]}, "tools[1]: name is required"),
    ({"tools": {}}, 'field "tools": Expected `array`, got `object`'),
    ({"tools": [{"name": "f"}]}, "registry.ollama.ai/library/tiny:latest does not support tools"),
    ({"model": "vectors"}, '"vectors" does not support chat'),
    ({"model": "bare"}, 'model "bare" has no chat template, and none is stored with it'),
    ({"model": "a:b:c/"}, "invalid model name"),
]


def refusal(words: str, answer: Any, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": kind, "message": words},
        "request_id": answer.headers["request-id"],
    }


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
@pytest.mark.parametrize(("change", "words"), REFUSED)
async def test_refused(daemon: Daemon, path: str, change: Any, words: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(path, CHAT | change)
    assert (answer.status, answer.json) == (400, refusal(words, answer))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens": None}, "max_tokens is required and must be positive"),
        ({"max_tokens": 0}, "max_tokens is required and must be positive"),
        ({"max_tokens": "many"}, 'field "max_tokens": Expected `int`, got `str`'),
        ({"stream": "yes"}, 'field "stream": Expected `bool`, got `str`'),
        ({"stop_sequences": "#"}, 'field "stop_sequences": Expected `array | null`, got `str`'),
        ({"temperature": "hot"}, 'field "temperature": Expected `float | null`, got `str`'),
        ({"thinking": "enabled"}, 'field "thinking": Expected `object | null`, got `str`'),
    ],
)
async def test_refused_by_the_route_that_answers(daemon: Daemon, change: Any, words: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(PATH, CHAT | change)
    assert (answer.status, answer.json) == (400, refusal(words, answer))


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        (b"", 400, "invalid_request_error", "missing request body"),
        (b"[1]", 400, "invalid_request_error", "the request body must be a JSON object"),
        (CHAT | {"model": "nobody"}, 404, "not_found_error", "model 'nobody' not found"),
        (
            CHAT | {"model": "big:cloud"},
            403,
            "permission_error",
            "ollama cloud is disabled: remote model is unavailable",
        ),
    ],
)
async def test_other_refusals(daemon: Daemon, body: Any, status: int, kind: str, words: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(PATH, body)
    assert (answer.status, answer.json) == (status, refusal(words, answer, kind))
