"""Weights without a chat template, and a Go template in the store: all dialects against real runners."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import ollama
import openai
import pytest

from tests.support.daemon_log import DaemonLog
from tests.support.pictures import PNG
from tests.support.real_daemon import RealDaemon
from tests.support.scripted_gguf import tool_call, write_scripted_gguf
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import words, write_tiny_gguf
from tests.support.tiny_projector import TOKENS, write_tiny_projector

from .conftest import ONE_THREAD

pytestmark = pytest.mark.real

TEMPLATE = """\
{{- if .Suffix }}<PRE>{{ .Prompt }}<SUF>{{ .Suffix }}<MID>
{{- else }}
{{- if .Tools }}{{ range .Tools }}{{ . }}
{{ end }}{{ end }}
{{- range .Messages }}<|im_start|>{{ .Role }}
{{ if .Thinking }}<think>
{{ .Thinking }}
</think>
{{ end }}{{ .Content }}
{{- if .ToolCalls }}<tool_call>
{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
{{ end }}</tool_call>{{ end }}<|im_end|>
{{ end }}<|im_start|>assistant
{{ end }}"""

KNOWN = {
    "known": "<|im_start|>{{ html .Prompt }}<|im_end|>",
    "named": "<|start_header_id|>{{ html .Prompt }}<|end_header_id|>",
}

QUESTION: Any = [{"role": "user", "content": "1+2?"}]
PARAMETERS: Any = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
FUNCTION: Any = {"name": "add", "description": "Add.", "parameters": PARAMETERS}
TOOL: Any = {"type": "function", "function": FUNCTION}
FIXED = {"temperature": 0, "num_predict": 12}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tiny_models: Mapping[str, bytes]) -> Iterator[RealDaemon]:
    """With `able` (thinks, then calls), `plain` (continues anything) and `seer` (looks at images).

    `known` and `named` have the weights of `plain`, and templates that cannot be used, in formats that llama.cpp knows.
    """
    folder = tmp_path_factory.mktemp("templates")
    into = OllamaStore(folder / "models")
    into.add("tiny:latest", tiny_models["tiny"], params=ONE_THREAD)
    pieces = ["<thi", "nk>\nhm", " so", "\n</th", "ink>\n\n", "Let me", " see.", tool_call("add", '{"a": 1, "b": 2}')]
    able = write_scripted_gguf(folder / "able.gguf", pieces, chat_template="")
    plain = write_tiny_gguf(folder / "plain.gguf", seed=7, chat_template=False)
    eyes = into.layer("projector", write_tiny_projector(folder / "eyes.gguf").read_bytes())
    into.add("able:latest", able.read_bytes(), params=ONE_THREAD, template=TEMPLATE)
    into.add("plain:latest", plain.read_bytes(), params=ONE_THREAD, template=TEMPLATE)
    into.add("seer:latest", plain.read_bytes(), params=ONE_THREAD, template=TEMPLATE, layers=[eyes])
    for name, template in KNOWN.items():
        into.add(f"{name}:latest", plain.read_bytes(), params=ONE_THREAD, template=template)
    with RealDaemon(into.root) as daemon:
        yield daemon


@pytest.fixture
def anthropic_client(daemon: RealDaemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=daemon.url, api_key="unused", max_retries=0) as made:
        yield made


def test_the_native_dialect(client: ollama.Client) -> None:
    assert client.show("able").capabilities == ["completion", "tools", "insert", "thinking"]
    whole = client.chat("able", QUESTION, tools=[TOOL])
    assert (whole.message.thinking, whole.message.content) == ("hm so\n", "Let me see.")
    assert whole.message.tool_calls is not None
    (call,) = whole.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("add", {"a": 1, "b": 2})
    parts = list(client.chat("able", QUESTION, tools=[TOOL], stream=True))
    assert "".join(part.message.thinking or "" for part in parts) == "hm so\n"
    assert "".join(part.message.content or "" for part in parts) == "Let me see."
    assert parts[-1].message.tool_calls == whole.message.tool_calls
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count == 9
    result = {"role": "tool", "content": "3", "tool_name": "add"}
    assert client.chat("able", [*QUESTION, whole.message, result], tools=[TOOL]).message.tool_calls


def test_generate_thinks_too(client: ollama.Client) -> None:
    whole = client.generate("able", "1+2?")
    assert whole.thinking == "hm so\n"
    assert (whole.response or "").startswith("Let me see.<tool_call>")


def test_openais_dialect(openai_client: openai.OpenAI) -> None:
    arguments: Any = {"model": "able", "messages": QUESTION, "tools": [TOOL]}
    (choice,) = openai_client.chat.completions.create(**arguments).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
    assert choice.message.tool_calls[0].function.arguments == '{"a":1,"b":2}'
    parts = [part for part in openai_client.chat.completions.create(stream=True, **arguments) if part.choices]
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "Let me see."
    assert [call.function.name for part in parts for call in part.choices[0].delta.tool_calls or ()] == ["add"]
    assert parts[-1].choices[0].finish_reason == "tool_calls"


def test_anthropics_dialect(anthropic_client: anthropic.Anthropic) -> None:
    arguments: Any = {
        "model": "able",
        "messages": QUESTION,
        "max_tokens": 50,
        "tools": [{"name": "add", "input_schema": PARAMETERS}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    with anthropic_client.messages.stream(**arguments) as stream:
        answer = stream.get_final_message()
    assert [block.type for block in answer.content] == ["thinking", "text", "tool_use"]
    assert answer.content[-1].input == {"a": 1, "b": 2}  # type: ignore[union-attr]
    assert answer.stop_reason == "tool_use"
    count = anthropic_client.messages.count_tokens(model="able", messages=QUESTION).input_tokens
    assert count > 10


def test_text_between_two_others(client: ollama.Client, openai_client: openai.OpenAI) -> None:
    whole = client.generate("plain", words(3), suffix=words(2), options=FIXED)
    raw = client.generate("plain", f"<PRE>{words(3)}<SUF>{words(2)}<MID>", raw=True, options=FIXED)
    assert whole.response
    assert (whole.response, whole.prompt_eval_count) == (raw.response, raw.prompt_eval_count)
    arguments: Any = {"model": "plain", "prompt": words(3), "suffix": words(2), "temperature": 0, "max_tokens": 12}
    completed = openai_client.completions.create(**arguments)
    assert completed.choices[0].text == raw.response


@pytest.mark.parametrize("model", ["plain", "tiny"])
def test_a_context_is_the_conversation_so_far(client: ollama.Client, model: str) -> None:
    first = client.generate(model, words(3), options=FIXED)
    assert first.context is not None
    assert first.prompt_eval_count is not None
    assert len(first.context) >= first.prompt_eval_count
    second = client.generate(model, words(2), context=first.context, options=FIXED)
    assert second.prompt_eval_count is not None
    assert second.prompt_eval_count > len(first.context)
    assert second.context is not None
    # One begin token, in front of everything.
    assert (second.context[0], second.context.count(1)) == (1, 1)
    again = client.generate(model, words(2), context=first.context, options=FIXED)
    assert (again.response, again.context) == (second.response, second.context)


def test_images_stand_where_the_template_puts_them(client: ollama.Client) -> None:
    def asked(content: str, *images: bytes) -> ollama.ChatResponse:
        message = {"role": "user", "content": content, "images": [base64.b64encode(one).decode() for one in images]}
        return client.chat("seer", [message], options=FIXED)

    without, seen = asked("w1  w2"), asked("w1 [img] w2", PNG)
    assert without.prompt_eval_count is not None
    assert seen.prompt_eval_count is not None
    assert seen.prompt_eval_count >= without.prompt_eval_count + TOKENS
    assert seen.message.content


def test_a_begin_token_of_the_template_is_not_a_second_one(client: ollama.Client) -> None:
    one = client.generate("plain", words(3), template="{{ .Prompt }}", options=FIXED)
    two = client.generate("plain", words(3), template="<s>{{ .Prompt }}", options=FIXED)
    assert (one.prompt_eval_count, one.response, one.context) == (two.prompt_eval_count, two.response, two.context)


def test_formats_that_the_runner_knows_by_name(daemon: RealDaemon, client: ollama.Client) -> None:
    """G22: another name for the same weights has another one of them, so its runner is another; `plain` takes any."""
    log = DaemonLog(daemon.log_path)
    prompts = {
        "known": f"<|im_start|>user\n{words(3)}<|im_end|>\n<|im_start|>assistant\n",
        "named": (
            f"<|start_header_id|>user<|end_header_id|>\n\n{words(3)}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
        ),
    }
    for name, prompt in prompts.items():
        said = client.chat(name, [{"role": "user", "content": words(3)}], options=FIXED)
        raw = client.generate("plain", prompt, raw=True, options=FIXED)
        assert said.message.content
        assert (said.message.content, said.prompt_eval_count) == (raw.response, raw.prompt_eval_count)
    assert len(log.matching(r"loading \S+ as generation")) == len(prompts)
    assert client.show("named").capabilities == ["completion"]
    with pytest.raises(ollama.ResponseError, match="does not support tools") as refused:
        client.chat("named", QUESTION, tools=[TOOL])
    assert refused.value.status_code == 400
