"""POST /api/chat: what the runner is asked, and how its answer comes back."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events
from trio_ollama.runners.contract import RunnerRefusedError
from trio_ollama.settings import Settings

from .conftest import AddModel, Daemon

USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "tiny", "messages": [USER]}
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
METRICS = {
    "prompt_eval_count": 7,
    "prompt_eval_duration": 1_500_000,
    "eval_count": 3,
    "eval_duration": 2_500_000,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


async def test_a_stream(daemon: Daemon) -> None:
    answer = await daemon.post("/api/chat", CHAT)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    first, second, last = lines = answer.lines
    for line in lines:
        assert STAMP.fullmatch(line.pop("created_at"))
        assert line.pop("model") == "tiny"
    assert first == {"message": {"role": "assistant", "content": "Hel"}, "done": False}
    assert second["message"]["content"] == "lo"
    assert last.pop("total_duration") >= last.pop("load_duration") > 0
    empty = {"role": "assistant", "content": ""}
    assert last == {"message": empty, "done": True, "done_reason": "stop", **METRICS}


async def test_one_object(daemon: Daemon) -> None:
    script = [[*chat_events("Let me ", "see", thinking=True), *chat_events("Hel", "lo"), chat_end("length")]]
    daemon.scheduler.script = lambda path, body: script
    answer = await daemon.post("/api/chat", CHAT | {"stream": False})
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    message = {"role": "assistant", "content": "Hello", "thinking": "Let me see"}
    assert answer.json | METRICS == answer.json
    assert (answer.json["message"], answer.json["done"], answer.json["done_reason"]) == (message, True, "length")


async def test_what_the_runner_is_asked(daemon: Daemon) -> None:
    options = {"temperature": 0, "stop": ["#"], "num_predict": 5, "seed": 42}
    await daemon.post("/api/chat", CHAT | {"options": options})
    ((path, body),) = daemon.scheduler.calls
    assert path == "/v1/chat/completions"
    assert body == {
        "messages": [USER],
        "stream": True,
        "return_progress": True,
        "cache_prompt": True,
        "n_predict": 5,
        "n_keep": 4,
        "seed": 42,
        "temperature": 0.0,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repeat_last_n": 64,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": ["#"],
    }


@pytest.mark.parametrize("wanted", [-1, -2, 10**9])
async def test_no_answer_is_without_bound(daemon: Daemon, wanted: int) -> None:
    daemon.scheduler.context = 100
    await daemon.post("/api/chat", CHAT | {"options": {"num_predict": wanted}})
    assert daemon.scheduler.calls[0][1]["n_predict"] == 1000


async def test_no_tokens_wanted(daemon: Daemon) -> None:
    answer = await daemon.post("/api/chat", CHAT | {"options": {"num_predict": 0}})
    (line,) = answer.lines
    assert (line["message"]["content"], line["done_reason"], line["prompt_eval_count"]) == ("", "length", 7)
    assert "eval_count" not in line


async def test_the_models_own_options_are_below_the_requests(daemon: Daemon, add_model: AddModel) -> None:
    add_model("own", params={"temperature": 0.1, "top_k": 3, "num_ctx": 512})
    await daemon.post("/api/chat", CHAT | {"model": "own", "options": {"top_k": 9}})
    body = daemon.scheduler.calls[0][1]
    assert (body["temperature"], body["top_k"]) == (0.1, 9)
    options = daemon.scheduler.demands[0].options
    assert (options.num_ctx, options.num_ctx_auto) == (512, False)


async def test_the_demand(daemon: Daemon) -> None:
    options = {"num_ctx": 1024, "num_gpu": 0, "use_mmap": False, "num_thread": 2, "num_batch": 64}
    await daemon.post("/api/chat", CHAT | {"options": options, "keep_alive": "1m", "shift": False})
    (demand,) = daemon.scheduler.demands
    assert demand.keep_alive == 60 * 10**9
    assert demand.slot
    wanted = demand.options
    assert (wanted.num_ctx, wanted.num_gpu, wanted.use_mmap, wanted.num_thread) == (1024, 0, False, 2)
    assert (wanted.num_batch, wanted.num_batch_auto, wanted.shift, wanted.embeddings) == (64, False, False, False)
    model = demand.model
    assert (model.name, model.architecture, model.layers, model.kv_heads) == ("tiny:latest", "llama", 2, 2)
    assert (model.head_dim, model.train_context, model.completion, model.pooled) == (16, 2048, True, False)
    assert model.file_size > 0
    assert model.key == model.path


async def test_the_default_context(daemon: Daemon) -> None:
    await daemon.post("/api/chat", CHAT)
    assert daemon.scheduler.demands[0].options.num_ctx == 4096
    assert daemon.scheduler.demands[0].options.num_ctx_auto
    services = daemon.app.extensions["trio_ollama"]
    object.__setattr__(services, "settings", Settings(context_length=777))
    await daemon.post("/api/chat", CHAT)
    assert daemon.scheduler.demands[1].options.num_ctx == 777
    assert not daemon.scheduler.demands[1].options.num_ctx_auto


@pytest.mark.parametrize("messages", [[], None])
async def test_load(daemon: Daemon, messages: Any) -> None:
    answer = await daemon.post("/api/chat", {"model": "bare", "messages": messages, "keep_alive": -1})
    (line,) = answer.lines
    assert STAMP.fullmatch(line.pop("created_at"))
    message = {"role": "assistant", "content": ""}
    assert line == {"model": "bare", "message": message, "done": True, "done_reason": "load"}
    (demand,) = daemon.scheduler.demands
    assert not demand.slot
    assert demand.keep_alive == (1 << 63) - 1
    assert not daemon.scheduler.calls


@pytest.mark.parametrize("keep_alive", [0, "0", "0s", 0.0])
async def test_unload(daemon: Daemon, keep_alive: Any) -> None:
    answer = await daemon.post("/api/chat", {"model": "tiny", "keep_alive": keep_alive})
    assert answer.json["done_reason"] == "unload"
    assert not daemon.scheduler.demands
    assert daemon.scheduler.stopped == [str(daemon.store.resolve("tiny").weights_path)]


async def test_the_models_system_text_and_messages(daemon: Daemon, add_model: AddModel) -> None:
    stored = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    add_model("own", system="Be kind.", messages=stored)
    await daemon.post("/api/chat", CHAT | {"model": "own"})
    system = {"role": "system", "content": "Be kind."}
    assert daemon.scheduler.calls[0][1]["messages"] == [system, *stored, USER]
    other = {"role": "system", "content": "Be brief."}
    await daemon.post("/api/chat", CHAT | {"model": "own", "messages": [other, USER]})
    assert daemon.scheduler.calls[1][1]["messages"] == [*stored, other, USER]


async def test_all_that_a_message_can_hold(daemon: Daemon, add_model: AddModel) -> None:
    add_model("sensible", capabilities=("vision", "audio"))
    png = b"\x89PNG\r\n\x1a\n" + bytes(8)
    wav = b"RIFF\0\0\0\0WAVE"
    call = {"id": "c1", "function": {"index": 0, "name": "weather", "arguments": {"b": 1, "a": [2]}}}
    messages = [
        {"role": "user", "content": "see", "images": [base64.b64encode(png).decode(), base64.b64encode(wav).decode()]},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_name": "weather", "tool_call_id": "c1"},
    ]
    await daemon.post("/api/chat", CHAT | {"model": "sensible", "messages": messages})
    user, assistant, tool = daemon.scheduler.calls[0][1]["messages"]
    url = "data:image/png;base64," + base64.b64encode(png).decode()
    assert user["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "\n"},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"}},
    ]
    function = {"name": "weather", "arguments": '{"b":1,"a":[2]}'}
    assert assistant == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert tool == {"role": "tool", "content": "rain", "name": "weather", "tool_call_id": "c1"}


@pytest.mark.parametrize(
    ("think", "arguments"),
    [
        (None, {"enable_thinking": True}),
        (True, {"enable_thinking": True}),
        (False, {"enable_thinking": False}),
        ("low", {"enable_thinking": True, "reasoning_effort": "low"}),
    ],
)
async def test_think(daemon: Daemon, think: Any, arguments: Any) -> None:
    await daemon.post("/api/chat", CHAT | {"model": "thinker", "think": think})
    assert daemon.scheduler.calls[0][1]["chat_template_kwargs"] == arguments


async def test_think_says_nothing_to_a_model_that_does_not(daemon: Daemon) -> None:
    await daemon.post("/api/chat", CHAT)
    assert "chat_template_kwargs" not in daemon.scheduler.calls[0][1]


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ("", None),
        (None, None),
        ("json", {"type": "json_object"}),
        (
            {"type": "object"},
            {"type": "json_schema", "json_schema": {"name": "schema", "schema": {"type": "object"}}},
        ),
    ],
)
async def test_format(daemon: Daemon, wanted: Any, sent: Any) -> None:
    await daemon.post("/api/chat", CHAT | {"format": wanted})
    assert daemon.scheduler.calls[0][1].get("response_format") == sent


async def test_tool_calls_come_whole_in_the_last_object(daemon: Daemon) -> None:
    def fragment(index: int, **function: str) -> dict[str, Any]:
        call = {"index": index, "function": function} | ({"id": f"id{index}"} if "name" in function else {})
        return {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]}

    script = [
        [fragment(0, name="weather", arguments='{"city": "Par'), fragment(0, arguments='is"}')],
        [fragment(1, name="now", arguments=""), chat_end("tool_calls")],
    ]
    daemon.scheduler.script = lambda path, body: script
    answer = await daemon.post("/api/chat", CHAT | {"model": "thinker", "tools": [TOOL]})
    assert daemon.scheduler.calls[0][1]["tools"] == [TOOL]
    (line,) = answer.lines
    assert line["done_reason"] == "stop"
    assert line["message"]["tool_calls"] == [
        {"id": "id0", "function": {"index": 0, "name": "weather", "arguments": {"city": "Paris"}}},
        {"id": "id1", "function": {"index": 1, "name": "now", "arguments": {}}},
    ]


async def test_tool_calls_with_broken_arguments(daemon: Daemon) -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": "{nope"}}
    script = [[*chat_events("so: "), chat_end("tool_calls", tool_calls=[call])]]
    daemon.scheduler.script = lambda path, body: script
    answer = await daemon.post("/api/chat", CHAT | {"model": "thinker", "tools": [TOOL]})
    assert answer.lines[-1]["error"].startswith('llama-server returned invalid tool call arguments for "f": ')


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("top", [0, 2])
async def test_logprobs(daemon: Daemon, stream: bool, top: int) -> None:
    (event,) = chat_events("hi")
    entry = {"id": 7, "token": "hi", "bytes": [104, 105], "logprob": -0.5}
    event["choices"][0]["logprobs"] = {"content": [entry | {"top_logprobs": [entry]}]}
    daemon.scheduler.script = lambda path, body: [[event, chat_end()]]
    wanted = {"logprobs": True, "top_logprobs": top, "stream": stream}
    answer = await daemon.post("/api/chat", CHAT | wanted)
    assert daemon.scheduler.calls[0][1]["top_logprobs"] == max(top, 1)
    shown = {"token": "hi", "bytes": [104, 105], "logprob": -0.5}
    assert answer.lines[0]["logprobs"] == [shown | ({"top_logprobs": [shown]} if top else {})]


class Crowded:
    """A runner whose context holds so many tokens; every character counts as one."""

    def __init__(self, daemon: Daemon, context: int) -> None:
        daemon.scheduler.context = self.context = context
        daemon.scheduler.script = self.script
        daemon.scheduler.answers = {
            "/apply-template": lambda body: {"prompt": "".join(message["content"] for message in body["messages"])},
            "/tokenize": lambda body: {"tokens": list(body["content"])},
        }

    def script(self, path: str, body: dict[str, Any]) -> Any:
        size = sum(len(message["content"]) for message in body["messages"])
        if size >= self.context:
            text = f"request ({size} tokens) exceeds the available context size"
            return RunnerRefusedError(400, text, kind="exceed_context_size_error")
        return [[*chat_events("ok"), chat_end()]]


HISTORY = [
    {"role": "user", "content": "1" * 40},
    {"role": "system", "content": "S" * 10},
    {"role": "assistant", "content": "2" * 40},
    {"role": "user", "content": "3" * 40},
    {"role": "user", "content": "4" * 40},
]


@pytest.mark.parametrize(
    ("context", "kept"),
    [(1000, "1S234"), (150, "S234"), (131, "S234"), (130, "S34"), (91, "S34"), (90, "S4"), (51, "S4")],
)
async def test_a_conversation_is_cut_to_the_context(daemon: Daemon, context: int, kept: str) -> None:
    Crowded(daemon, context)
    answer = await daemon.post("/api/chat", CHAT | {"messages": HISTORY})
    assert answer.status == 200
    sent = daemon.scheduler.calls[-1][1]["messages"]
    assert "".join(message["content"][0] for message in sent) == kept


@pytest.mark.parametrize("change", [{"truncate": False}, {"messages": [HISTORY[0] | {"content": "x" * 100}]}])
async def test_what_cannot_or_must_not_be_cut_is_refused(daemon: Daemon, change: Any) -> None:
    Crowded(daemon, 60)
    answer = await daemon.post("/api/chat", CHAT | {"messages": HISTORY} | change)
    assert answer.status == 400
    assert "exceeds the available context size" in answer.json["error"]
