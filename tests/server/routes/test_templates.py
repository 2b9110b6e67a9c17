"""Models whose prompts this server makes by a Go template: through all dialects, cut, completed, remembered."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from tests.support.fake_scheduler import FakeLease, completion_events
from trio_ollama.runners.contract import MEDIA_MARKER, RunnerRefusedError
from trio_ollama.settings import Settings

from .conftest import AddModel, Daemon, nothing_started

TEMPLATE = """\
{{- if .Suffix }}<PRE>{{ .Prompt }}<SUF>{{ .Suffix }}<MID>
{{- else }}
{{- if .Tools }}[tools]{{ range .Tools }}{{ .Function.Name }};{{ end }}
{{ end }}
{{- range .Messages }}[{{ .Role }}] {{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}
{{- if .ToolCalls }}<call>{{ range .ToolCalls }}{"name": "{{ .Function.Name }}"}{{ end }}{{ end }}
{{ end }}[assistant]{{ if and .IsThinkSet (not .Think) }} no thoughts{{ end }}
{{- end }}"""

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CALL = '<call>{"name": "weather", "arguments": {"city": "Paris"}}'
USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"model": "own", "messages": [USER]}
GENERATE: dict[str, Any] = {"model": "own", "prompt": "hi"}
ABLE = "registry.ollama.ai/library/tiny:latest does not support insert"


@pytest.fixture
def own(daemon: Daemon, add_model: AddModel) -> Daemon:
    """A daemon with `own`: weights without a chat template, and a Go template that can do everything."""
    add_model("own", "bare", template=TEMPLATE, params={"stop": ["[user]"]})
    daemon.scheduler.script = lambda path, body: [completion_events("Hel", "lo")]
    daemon.scheduler.answers = {
        "/tokenize": lambda body: {"tokens": list(map(ord, body["content"]))},
        "/detokenize": lambda body: {"content": "".join(map(chr, body["tokens"]))},
        "/apply-template": lambda body: {"prompt": f"<{body['messages'][-1]['content']}>"},
    }
    return daemon


def says(daemon: Daemon, *pieces: str) -> None:
    daemon.scheduler.script = lambda path, body: [[event] for event in completion_events(*pieces)]


def sent(daemon: Daemon) -> dict[str, Any]:
    """The last generating call."""
    return [body for path, body in daemon.scheduler.calls if path == "/completion"][-1]


async def test_a_chat(own: Daemon) -> None:
    answer = await own.post("/api/chat", CHAT)
    assert [line["message"]["content"] for line in answer.lines] == ["Hel", "lo", ""]
    assert (sent(own)["prompt"], sent(own)["stop"]) == ("[user] hi\n[assistant]", ["[user]"])
    assert answer.lines[-1]["done_reason"] == "stop"


async def test_all_that_a_conversation_can_hold(own: Daemon) -> None:
    call = {"function": {"name": "weather", "arguments": {}}}
    messages = [
        {"role": "System", "content": "Be kind."},
        USER,
        {"role": "assistant", "thinking": "hm", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_name": "weather"},
    ]
    await own.post("/api/chat", CHAT | {"messages": messages, "tools": [TOOL], "think": False})
    assert sent(own)["prompt"] == (
        "[tools]weather;\n[system] Be kind.\n[user] hi\n"
        '[assistant] <think>hm</think><call>{"name": "weather"}\n[tool] rain\n[assistant] no thoughts'
    )


async def test_stored_messages_and_the_system_text(own: Daemon, add_model: AddModel) -> None:
    stored = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    add_model("own", "bare", template=TEMPLATE, system="Be kind.", messages=stored)
    await own.post("/api/chat", CHAT)
    assert sent(own)["prompt"] == "[system] Be kind.\n[user] one\n[assistant] two\n[user] hi\n[assistant]"
    await own.post("/api/generate", GENERATE | {"system": "Be brief."})
    assert sent(own)["prompt"] == "[system] Be brief.\n[user] one\n[assistant] two\n[user] hi\n[assistant]"


PIECES = ["<thi", "nk>", "hm so", "</", "think>\n\n", "yes ", "<ca", CALL[3:20], CALL[20:]]


async def test_thoughts_and_calls_in_the_native_dialect(own: Daemon) -> None:
    says(own, *PIECES)
    *lines, last = (await own.post("/api/chat", CHAT | {"tools": [TOOL]})).lines
    assert "".join(line["message"].get("thinking", "") for line in lines) == "hm so"
    assert "".join(line["message"]["content"] for line in lines).strip() == "yes"
    assert not any("tool_calls" in line["message"] for line in lines)
    (call,) = last["message"]["tool_calls"]
    assert call.pop("id").startswith("call_")
    assert call == {"function": {"index": 0, "name": "weather", "arguments": {"city": "Paris"}}}
    assert (last["done"], last["done_reason"]) == (True, "stop")


async def test_thoughts_and_calls_in_openais_dialect(own: Daemon) -> None:
    says(own, *PIECES)
    body = {"model": "own", "messages": [USER], "tools": [TOOL]}
    (choice,) = (await own.post("/v1/chat/completions", body)).json["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["reasoning"], message["content"].strip()) == ("hm so", "yes")
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Paris"}'}


async def test_thoughts_and_calls_in_anthropics_dialect(own: Daemon) -> None:
    says(own, *PIECES)
    tool = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
    body = {
        "model": "own",
        "messages": [USER],
        "tools": [tool],
        "max_tokens": 50,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    answer = (await own.post("/v1/messages", body)).json
    assert answer["stop_reason"] == "tool_use"
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use"]
    assert answer["content"][2]["input"] == {"city": "Paris"}


async def test_without_tools_nothing_is_a_call(own: Daemon) -> None:
    says(own, CALL)
    answer = await own.post("/api/chat", CHAT | {"stream": False})
    assert answer.json["message"] == {"role": "assistant", "content": CALL}


async def test_without_tools_nothing_is_held_back(own: Daemon) -> None:
    says(own, "a <call>", "{", "b")
    answer = await own.post("/api/chat", CHAT)
    assert [line["message"]["content"] for line in answer.lines] == ["a <call>", "{", "b", ""]


async def test_a_call_that_never_ends_is_text(own: Daemon) -> None:
    says(own, CALL[:-2])
    answer = await own.post("/api/chat", CHAT | {"stream": False, "tools": [TOOL]})
    assert answer.json["message"] == {"role": "assistant", "content": CALL[:-2]}


OPENED = "{{ range .Messages }}{{ if .Thinking }}<t>{{ .Thinking }}</t>{{ end }}{{ .Content }}{{ end }}<t>"


async def test_a_prompt_that_begins_to_think(own: Daemon) -> None:
    template = OPENED
    says(own, "hm</t>yes")
    answer = await own.post("/api/generate", GENERATE | {"template": template, "stream": False})
    assert (answer.json["thinking"], answer.json["response"]) == ("hm", "yes")


async def test_a_constrained_answer_has_no_thoughts(own: Daemon) -> None:
    """Also where the prompt has begun with them: its first token is JSON already."""
    template = OPENED
    says(own, "{}")
    answer = await own.post("/api/generate", GENERATE | {"template": template, "stream": False, "format": "json"})
    assert answer.json["response"] == "{}"
    assert "thinking" not in answer.json
    assert "grammar" in sent(own)


async def test_probabilities_wait_for_their_text(own: Daemon) -> None:
    events = completion_events("<th", "ink>", "a", "b")
    for event in events[:-1]:
        event["completion_probabilities"] = [{"token": event["content"], "logprob": -1.0}]
    own.scheduler.script = lambda path, body: [events]
    first, second, _ = (await own.post("/api/chat", CHAT | {"logprobs": True})).lines
    assert (first["message"]["thinking"], second["message"]["thinking"]) == ("a", "b")
    assert [entry["token"] for entry in first["logprobs"]] == ["<th", "ink>", "a"]


@pytest.mark.parametrize(("path", "body"), [("/api/generate", GENERATE), ("/api/chat", CHAT)])
async def test_thirty_equal_tokens(own: Daemon, path: str, body: Any) -> None:
    """R75."""
    own.scheduler.script = lambda path, body: [completion_events("x")[:1]] * 40
    *lines, last = (await own.post(path, body)).lines
    assert len(lines) == 32
    assert (last["done"], last["done_reason"]) == (True, "length")


PNG = "iVBORw0KGgoAAAAA"


async def test_images_stand_where_the_template_puts_them(own: Daemon, add_model: AddModel) -> None:
    add_model("own", "bare", template=TEMPLATE, capabilities=("vision",))
    messages = [{"role": "user", "content": "a [img] b", "images": [PNG]}]
    await own.post("/api/chat", CHAT | {"messages": messages})
    prompt = sent(own)["prompt"]
    assert prompt["prompt_string"] == f"[user] a {MEDIA_MARKER} b\n[assistant]"
    assert prompt["multimodal_data"] == [PNG]


@pytest.mark.parametrize("text", ["[img-7]", "[img-0] [img-1]"])
async def test_places_without_an_image_are_refused(own: Daemon, add_model: AddModel, text: str) -> None:
    """Somebody's image must not get into another place."""
    add_model("own", "bare", template=TEMPLATE, capabilities=("vision",))
    with nothing_started(own.scheduler):
        answer = await own.post("/api/chat", CHAT | {"messages": [USER | {"content": text, "images": [PNG]}]})
    assert answer.status == 400
    assert "images belongs" in answer.json["error"]


async def test_how_many_images_a_prompt_has(own: Daemon, add_model: AddModel) -> None:
    add_model("own", "bare", template=TEMPLATE, capabilities=("vision",))
    for path, body in (
        ("/api/generate", GENERATE | {"images": [PNG, PNG]}),
        ("/api/chat", CHAT | {"messages": [USER | {"images": [PNG]}, USER | {"images": [PNG]}]}),
    ):
        info = (await own.post(path, body | {"_debug_render_only": True})).json["_debug_info"]
        assert info["image_count"] == 2
        assert "[img-0]" in info["rendered_template"]
        assert "[img-1]" in info["rendered_template"]


async def test_a_begin_token_is_not_doubled(own: Daemon) -> None:
    """The tokenizer of the tiny model puts its own in front: 1, which is `<s>`."""

    def tokens(body: dict[str, Any]) -> Any:
        return {"tokens": [1, *([1] if body["content"].startswith("<s>") else []), 9]}

    own.scheduler.answers = {"/tokenize": tokens, "/detokenize": lambda body: {"content": "<s>"}}
    await own.post("/api/generate", GENERATE | {"template": "<s>{{ .Prompt }}"})
    assert sent(own)["prompt"] == "hi"
    await own.post("/api/generate", GENERATE | {"template": "<t>{{ .Prompt }}"})
    assert sent(own)["prompt"] == "<t>hi"


async def test_a_conversation_is_cut_to_the_context(own: Daemon) -> None:
    def script(path: str, body: dict[str, Any]) -> Any:
        if len(body["prompt"]) >= 120:
            return RunnerRefusedError(400, "too long", kind="exceed_context_size_error")
        return [completion_events("ok")]

    own.scheduler.script, own.scheduler.context = script, 120
    messages = [{"role": role, "content": text * 40} for role, text in (("user", "1"), ("assistant", "2"))]
    messages.insert(1, {"role": "system", "content": "S"})
    answer = await own.post("/api/chat", CHAT | {"messages": [*messages, USER]})
    assert answer.status == 200
    assert sent(own)["prompt"] == f"[system] S\n[assistant] {'2' * 40}\n[user] hi\n[assistant]"
    assert (await own.post("/api/chat", CHAT | {"messages": messages * 3, "truncate": False})).status == 400


@pytest.mark.parametrize("model", ["own", "both"])
async def test_text_between_two_others(own: Daemon, add_model: AddModel, model: str) -> None:
    add_model("both", template=TEMPLATE)  # conversations by its own chat template
    wanted = {"model": model, "prompt": "a = ", "suffix": "b"}
    answer = await own.post("/api/generate", wanted | {"stream": False})
    assert (answer.json["response"], sent(own)["prompt"]) == ("Hello", "<PRE>a = <SUF>b<MID>")
    assert answer.json["context"] == list(map(ord, "<PRE>a = <SUF>b<MID>Hello"))
    answer = await own.post("/v1/completions", wanted)
    assert (answer.json["choices"][0]["text"], sent(own)["prompt"]) == ("Hello", "<PRE>a = <SUF>b<MID>")
    shown = (await own.post("/api/show", {"model": model})).json["capabilities"]
    assert "insert" in shown


async def test_a_template_of_the_request(own: Daemon) -> None:
    """It counts for more than the weights' own."""
    template = "Q: {{ .Prompt }} A:"
    answer = await own.post("/api/generate", {"model": "tiny", "prompt": "hi", "template": template, "stream": False})
    assert (answer.json["response"], sent(own)["prompt"]) == ("Hello", "Q: hi A:")
    await own.post("/api/generate", {"model": "tiny", "prompt": "a", "suffix": "b", "template": "{{ .Suffix }}|"})
    assert sent(own)["prompt"] == "b|"


@pytest.mark.parametrize("model", ["own", "tiny"])
async def test_a_context_goes_on(own: Daemon, add_model: AddModel, model: str) -> None:
    """What one answer tells is what the next request begins with, in place of the stored messages."""
    made = {"own": "[user] hi\n[assistant]", "tiny": "<hi>"}[model]
    if model == "tiny":
        own.scheduler.script = lambda path, body: (
            [completion_events("Hel", "lo")]
            if path == "/completion"
            else [[*({"choices": [{"delta": {"content": "Hello"}}]},), {"choices": [{"finish_reason": "stop"}]}]]
        )
    add_model("own", "bare", template=TEMPLATE, messages=[{"role": "user", "content": "stored"}])
    first = await own.post("/api/generate", GENERATE | {"model": model, "stream": False, "context": []})
    made_first = made if model == "tiny" else "[user] stored\n\nhi\n[assistant]"
    assert first.json["context"] == list(map(ord, made_first + "Hello"))
    context = list(map(ord, "before "))
    last = (await own.post("/api/generate", GENERATE | {"model": model, "context": context})).lines[-1]
    assert sent(own)["prompt"] == f"before {made}"
    assert last["context"] == list(map(ord, f"before {made}Hello"))


async def test_an_answer_does_not_hang_on_its_context(own: Daemon) -> None:
    own.scheduler.answers = {"/tokenize": lambda body: RunnerRefusedError(500, "no")}
    answer = await own.post("/api/generate", GENERATE | {"stream": False, "template": "{{ .Prompt }}"})
    assert (answer.status, answer.json["response"]) == (200, "Hello")
    assert "context" not in answer.json


async def test_nor_does_it_wait_for_it_for_ever(own: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that says nothing more has still given its answer; `Daemon.send` sees that it is let go."""

    async def silent(lease: FakeLease, path: str, body: object) -> Any:
        await trio.sleep_forever()

    monkeypatch.setattr(FakeLease, "ask", silent)
    monkeypatch.setattr("trio_ollama.server.inference.generation.CONTEXT_SECONDS", 0.05)
    with trio.fail_after(10):
        answer = await own.post("/api/generate", GENERATE | {"stream": False, "template": "{{ .Prompt }}"})
    assert (answer.status, answer.json["response"], answer.json["done"]) == (200, "Hello", True)
    assert "context" not in answer.json


async def test_raw_tells_no_context_and_takes_the_prompt_as_it_is(own: Daemon) -> None:
    says(own, "<think>hm</think>yes")
    answer = await own.post("/api/generate", GENERATE | {"raw": True, "stream": False})
    assert (answer.json["response"], sent(own)["prompt"]) == ("<think>hm</think>yes", "hi")
    assert "context" not in answer.json


async def test_thoughts_of_a_model_with_a_chat_template_are_split_after_a_context_too(own: Daemon) -> None:
    says(own, "<think>hm</think>yes")
    wanted = {"model": "thinker", "prompt": "hi", "context": [65], "stream": False}
    answer = await own.post("/api/generate", wanted)
    assert (answer.json["thinking"], answer.json["response"]) == ("hm", "yes")


@pytest.mark.parametrize(("model", "prompt"), [("own", "[user] hi\n[assistant]"), ("tiny", "<hi>")])
async def test_render_only(own: Daemon, model: str, prompt: str) -> None:
    for route, body, empty in (
        ("/api/chat", CHAT, {"message": {"role": "assistant", "content": ""}}),
        ("/api/generate", GENERATE, {"response": ""}),
    ):
        answer = await own.post(route, body | {"model": model, "_debug_render_only": True})
        answer.json.pop("created_at")
        assert {name: value for name, value in answer.json.items() if name != "created_at"} == {
            "model": model,
            **empty,
            "done": False,
            "_debug_info": {"rendered_template": prompt},
        }
    assert not any(path == "/completion" for path, _ in own.scheduler.calls)


async def test_counting_tokens(own: Daemon) -> None:
    body = {"model": "own", "messages": [USER]}
    answer = await own.post("/v1/messages/count_tokens", body)
    assert answer.json["input_tokens"] == len("[user] hi\n[assistant]")


REFUSED = [
    ({"template": "{{ if }}"}, "template: "),
    ({"template": "{{ index .Messages 9 }}{{ .Prompt }}"}, 'model "own" has a template that cannot be rendered: '),
    ({"model": "tiny", "suffix": "b"}, ABLE),
    ({"model": "boaster", "suffix": "b"}, ABLE.replace("tiny", "boaster")),
    ({"model": "bad"}, 'model "bad" has a Go template that cannot be used: line 1: '),
    ({"context": [1], "images": [PNG]}, "context and images cannot be combined"),
    ({"raw": True, "context": [1]}, "raw mode does not support template, system, or context"),
    ({"context": ["x"]}, "json: "),
]


@pytest.mark.parametrize(("change", "text"), REFUSED, ids=[text for _, text in REFUSED])
async def test_refused(own: Daemon, add_model: AddModel, change: dict[str, Any], text: str) -> None:
    add_model("bad", "bare", template="{{ end }}")
    add_model("boaster", capabilities=("insert",))
    with nothing_started(own.scheduler):
        answer = await own.post("/api/generate", GENERATE | change)
    assert answer.status == 400
    assert answer.json["error"].startswith(text) or change == {"context": ["x"]}


@pytest.mark.parametrize(("setting", "path"), [(None, "/v1/chat/completions"), (True, "/completion")])
async def test_the_setting(
    own: Daemon, add_model: AddModel, caplog: pytest.LogCaptureFixture, setting: bool | None, path: str
) -> None:
    """A template that is not used is mentioned, once."""
    add_model("both", template=TEMPLATE)
    object.__setattr__(own.app.extensions["trio_ollama"], "settings", Settings(go_template=setting))
    if setting is None:
        own.scheduler.script = lambda path, body: [[{"choices": [{"finish_reason": "stop"}]}]]
    with caplog.at_level(logging.INFO, "trio_ollama.server.lookup"):
        for _ in range(2):
            await own.post("/api/chat", CHAT | {"model": "both"})
    assert {asked for asked, _ in own.scheduler.calls} - {"/tokenize"} == {path}
    said = [record.getMessage() for record in caplog.records if "TEMPLATE" in record.getMessage()]
    assert len(said) == (1 if setting is None else 0)
    assert ("notes" in (await own.post("/api/show", {"model": "both"})).json) is (setting is None)
