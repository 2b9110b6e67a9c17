"""/v1/responses: what is understood of a request, and what is refused before anything is loaded."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events
from trio_ollama.runners.contract import RunnerRefusedError
from trio_ollama.server.openai.responses_input import conversation

from .conftest import AddModel, Daemon, nothing_started

PATH = "/v1/responses"
ASK: dict[str, Any] = {"model": "tiny", "input": "hi"}
USER = {"role": "user", "content": "hi"}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
URL = f"data:image/png;base64,{PNG}"
SHOWN = {"type": "image_url", "image_url": {"url": URL}}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'}
CALLED = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}


def say(role: str, content: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content}


def text(words: str, kind: str = "input_text") -> dict[str, str]:
    return {"type": kind, "text": words}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("hi", [USER]),
        ([USER], [USER]),
        ([say("user", [text("a"), text("b")])], [{"role": "user", "content": "ab"}]),
        ([say("developer", "do")], [{"role": "system", "content": "do"}]),
        (
            [say("assistant", [text("a", "output_text") | {"annotations": []}, {"type": "refusal", "refusal": "b"}])],
            [{"role": "assistant", "content": "ab"}],
        ),
        (
            [say("user", [text("look"), {"type": "input_image", "image_url": URL, "detail": "auto"}])],
            [{"role": "user", "content": [{"type": "text", "text": "look"}, SHOWN]}],
        ),
        (
            [USER, CALL, OUTPUT],
            [
                USER,
                {"role": "assistant", "content": "", "tool_calls": [CALLED]},
                {"role": "tool", "content": "42", "name": "f", "tool_call_id": "c1"},
            ],
        ),
        (
            [say("assistant", "let me"), CALL, CALL | {"call_id": "c2"}],
            [{"role": "assistant", "content": "let me", "tool_calls": [CALLED, CALLED | {"id": "c2"}]}],
        ),
        (
            [CALL, OUTPUT, CALL],
            [
                {"role": "assistant", "content": "", "tool_calls": [CALLED]},
                {"role": "tool", "content": "42", "name": "f", "tool_call_id": "c1"},
                {"role": "assistant", "content": "", "tool_calls": [CALLED]},
            ],
        ),
        (
            [OUTPUT | {"output": [text("see"), {"type": "input_image", "image_url": URL}]}],
            [{"role": "tool", "content": "see", "tool_call_id": "c1"}, {"role": "user", "content": [SHOWN]}],
        ),
        ([REASONING, say("assistant", "yes"), {"type": "web_search_call"}], [{"role": "assistant", "content": "yes"}]),
        (
            [CALL | {"namespace": "ns"}],
            [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [CALLED | {"function": {"name": "ns.f", "arguments": '{"x":1}'}}],
                }
            ],
        ),
    ],
)
async def test_input(daemon: Daemon, add_model: AddModel, given: Any, sent: Any) -> None:
    add_model("seer", capabilities=("vision",))
    assert (await daemon.post(PATH, ASK | {"model": "seer", "input": given})).status == 200
    assert daemon.scheduler.calls[0][1]["messages"] == sent


@pytest.mark.parametrize(
    ("items", "thinking"),
    [
        ([REASONING, say("assistant", "yes"), say("assistant", "no")], ["hm", ""]),
        ([REASONING, CALL, OUTPUT], ["hm", ""]),
        ([REASONING, USER, say("assistant", "yes")], ["", "hm"]),
        ([REASONING | {"encrypted_content": "all of it"}, say("assistant", "yes")], ["all of it"]),
        ([say("assistant", "a"), REASONING, CALL], ["", "hm"]),
    ],
)
def test_thoughts_belong_to_the_assistants_next_message(items: Any, thinking: list[str]) -> None:
    assert [message.thinking for message in conversation("", items)] == thinking


@pytest.mark.parametrize(("change", "status"), [({}, 200), ({"truncation": "disabled"}, 400)])
async def test_truncation(daemon: Daemon, change: Any, status: int) -> None:
    """The oldest messages go where the prompt is too long, unless the request forbids it."""
    too_long = RunnerRefusedError(400, "too long", kind="exceed_context_size_error")
    daemon.scheduler.script = lambda path, body: (
        too_long if len(body["messages"]) > 1 else [[*chat_events("a"), chat_end()]]
    )
    daemon.scheduler.answers["/apply-template"] = lambda body: {"prompt": "x" * 3_000 * len(body["messages"])}
    daemon.scheduler.answers["/tokenize"] = lambda body: {"tokens": list(range(len(body["content"])))}
    answer = await daemon.post(PATH, ASK | {"input": [USER, USER]} | change)
    assert answer.status == status


async def test_instructions_replace_the_models_own(daemon: Daemon, add_model: AddModel) -> None:
    add_model("mine", system="mine")
    await daemon.post(PATH, ASK | {"model": "mine", "instructions": "yours"})
    await daemon.post(PATH, ASK | {"model": "mine"})
    first, second = (call[1]["messages"][0]["content"] for call in daemon.scheduler.calls)
    assert (first, second) == ("yours", "mine")


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        ({}, {"temperature": 1.0, "top_p": 1.0, "n_predict": 40960}),
        ({"temperature": 0, "top_p": 0.5, "max_output_tokens": 9}, {"temperature": 0.0, "top_p": 0.5, "n_predict": 9}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"verbosity": "low"}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "array"}, "strict": True}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "schema", "schema": {"type": "array"}},
                }
            },
        ),
        ({"store": True, "tool_choice": "required", "include": [], "user": "me", "service_tier": "auto"}, {}),
        ({"previous_response_id": None, "conversation": None, "background": False, "reasoning": None}, {}),
    ],
)
async def test_what_the_runner_is_asked(daemon: Daemon, change: Any, sent: Any) -> None:
    assert (await daemon.post(PATH, ASK | change)).status == 200
    body = daemon.scheduler.calls[0][1]
    assert {name: body[name] for name in sent} == sent
    assert ("response_format" in body) == ("response_format" in sent)
    assert daemon.scheduler.demands[0].keep_alive is None


@pytest.mark.parametrize(
    ("effort", "arguments"),
    [
        ("none", {"enable_thinking": False}),
        ("minimal", {"enable_thinking": True, "reasoning_effort": "low"}),
        ("", {"enable_thinking": True}),
    ],
)
async def test_effort(daemon: Daemon, effort: str, arguments: Any) -> None:
    answer = await daemon.post(PATH, ASK | {"model": "thinker", "reasoning": {"effort": effort, "summary": "auto"}})
    assert daemon.scheduler.calls[0][1]["chat_template_kwargs"] == arguments
    assert answer.json["reasoning"] == {"effort": effort or None, "summary": "auto"}


async def test_tools(daemon: Daemon) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    tools = [
        {"type": "function", "name": "f", "description": "does", "parameters": schema, "strict": True},
        {"type": "namespace", "name": "ns", "description": "many", "tools": [{"type": "function", "name": "g"}]},
        {"type": "web_search"},
    ]
    answer = await daemon.post(PATH, ASK | {"model": "thinker", "tools": tools})
    empty = {"type": "object", "properties": {}}
    assert daemon.scheduler.calls[0][1]["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "does", "parameters": schema}},
        {"type": "function", "function": {"name": "ns.g", "parameters": empty}},
    ]
    assert answer.json["tools"] == tools


KEEPS_NOTHING = "is not supported: nothing is kept here, send the whole conversation as input"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": ""}, "model is required"),
        ({"input": None}, "input is required"),
        ({"input": []}, "input is required"),
        ({"input": 7}, "input must be a string or an array of items"),
        ({"input": [USER, "hi"]}, "input[1]: an item must be an object"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 'input[0]: unknown item type "item_reference"'),
        ({"input": [{"type": 1}]}, 'input[0]: unknown item type "1"'),
        ({"input": [{"text": "hi"}]}, 'input[0]: unknown item type "None"'),
        ({"input": [{"role": "user"}]}, "input[0]: content is required"),
        ({"input": [say("user", 1)]}, "input[0]: content must be a string or an array of parts"),
        ({"input": [say("user", ["hi"])]}, "input[0]: a content part must be an object with a type"),
        ({"input": [say("user", [{"type": "input_video"}])]}, 'input[0]: invalid content part of type "input_video"'),
        ({"input": [say("user", [text(1)])]}, 'input[0]: invalid content part of type "input_text"'),  # type: ignore[arg-type]
        (
            {"input": [say("user", [{"type": "input_file", "file_data": "x"}])]},
            "input[0]: file inputs are not currently supported",
        ),
        (
            {"input": [say("user", [{"type": "input_image", "file_id": "x"}])]},
            "input[0]: file inputs are not currently supported",
        ),
        (
            {"input": [say("user", [{"type": "input_image", "image_url": "https://x/y"}])]},
            "input[0]: image URLs are not currently supported, please use base64 encoded data instead",
        ),
        ({"input": [CALL | {"call_id": ""}]}, "input[0]: call_id is required"),
        ({"input": [CALL | {"name": None}]}, "input[0]: name is required"),
        ({"input": [CALL | {"arguments": "{"}]}, "input[0]: invalid tool call arguments"),
        ({"input": [OUTPUT | {"output": None}]}, "input[0]: content is required"),
        ({"input": [REASONING | {"summary": "hm"}]}, 'input[0]: field "summary": Expected `array`, got `str`'),
        ({"tools": [{"type": "function"}]}, "tools[0]: name is required"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{}]}]}, "tools[0].tools[0]: name is required"),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": []}]},
            'tools[0]: field "parameters": Expected `object`, got `array`',
        ),
        (
            {"tools": [{"type": "function", "name": "f"}]},
            "registry.ollama.ai/library/tiny:latest does not support tools",
        ),
        (
            {"reasoning": {"effort": "extreme"}},
            'invalid reasoning value: "extreme" (must be "minimal", "low", "medium", "high", "xhigh", "ultra", '
            '"max", or "none")',
        ),
        ({"reasoning": {"effort": "low"}}, '"tiny" does not support thinking'),
        ({"truncation": "some"}, 'invalid truncation: "some" (must be "auto" or "disabled")'),
        ({"previous_response_id": "resp_1"}, f"previous_response_id {KEEPS_NOTHING}"),
        ({"conversation": "conv_1"}, f"conversation {KEEPS_NOTHING}"),
        ({"background": True}, f"background {KEEPS_NOTHING}"),
        ({"stream": "yes"}, 'field "stream": Expected `bool`, got `str`'),
        ({"max_output_tokens": "many"}, 'field "max_output_tokens": Expected `int | null`, got `str`'),
        ({"text": {"format": "json"}}, 'field "text.format": Expected `object`, got `str`'),
        ({"model": "vectors"}, '"vectors" does not support chat'),
    ],
)
async def test_refused(daemon: Daemon, change: Any, words: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post(PATH, ASK | change)
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": None}
    assert (answer.status, answer.json) == (400, {"error": error})


async def test_a_model_that_is_not_there(daemon: Daemon) -> None:
    answer = await daemon.post(PATH, ASK | {"model": "nobody"})
    assert (answer.status, answer.json["error"]["type"]) == (404, "not_found_error")
