"""The official client of OpenAI's API on /v1/responses, and with tools and thoughts on the older route."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from tests.support.daemon_log import DaemonLog
from tests.support.real_daemon import RealDaemon
from tests.support.scripted_models import add_scripted_models
from tests.support.tiny_gguf import words
from tests.support.until import until

from .conftest import StartDaemon

pytestmark = pytest.mark.real

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "add", "description": "the sum", "parameters": SCHEMA}
ENDLESS: dict[str, Any] = {"model": "endless", "input": words(5), "max_output_tokens": 30_000}
SOON = 10.0


@pytest.fixture
def daemon(store: Path, start_daemon: StartDaemon) -> RealDaemon:
    add_scripted_models(store)
    return start_daemon()


@pytest.fixture
def client(daemon: RealDaemon) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


@pytest.fixture
async def asynchronous(daemon: RealDaemon) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


def test_text(client: Any) -> None:
    asked = {"model": "tiny", "input": words(5), "max_output_tokens": 6, "temperature": 0}
    whole = client.responses.create(**asked)
    assert whole.output_text
    assert (whole.status, whole.usage.output_tokens) == ("completed", 6)
    assert whole.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_thoughts(client: Any) -> None:
    whole = client.responses.create(model="thinker", input=words(5))
    thoughts, message = whole.output
    assert (thoughts.type, thoughts.summary[0].text.strip(), message.type) == ("reasoning", "hm so", "message")
    assert whole.output_text == "yes."
    # What came may be sent back as it is.
    history = [{"role": "user", "content": words(5)}, *whole.output, {"role": "user", "content": words(3)}]
    with client.responses.stream(model="thinker", input=history) as stream:
        assert [item.type for item in stream.get_final_response().output] == ["reasoning", "message"]


def test_tools(client: Any) -> None:
    whole = client.responses.create(model="caller", input=words(5), tools=[TOOL])
    message, call = whole.output
    assert (message.content[0].text, call.type, call.name) == ("Let me see.", "function_call", "add")
    assert json.loads(call.arguments) == {"a": 1, "b": 2}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    history = [{"role": "user", "content": words(5)}, *whole.output, output]
    with client.responses.stream(model="caller", input=history, tools=[TOOL]) as stream:
        arguments = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert [json.loads(text) for text in arguments] == [{"a": 1, "b": 2}]
    assert final.output[1].arguments == arguments[0]


def test_a_schema(client: Any) -> None:
    schema = SCHEMA | {"properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    whole = client.responses.create(model="tiny", input=words(5), max_output_tokens=60, text={"format": form})
    assert set(json.loads(whole.output_text)) == {"a"}


def test_errors(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="model 'nobody' not found"):
        client.responses.create(model="nobody", input="hi")
    with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
        client.responses.create(model="tiny", input="hi", previous_response_id="resp_1")
    history = [{"role": "user", "content": words(1_500)} for _ in range(2)]
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        client.responses.create(model="tiny", input=history, truncation="disabled", max_output_tokens=1)
    assert client.responses.create(model="tiny", input=history, max_output_tokens=1).usage.input_tokens < 2_048


def test_an_error_in_the_middle(daemon: RealDaemon, client: Any) -> None:
    """The runner is killed: the stream ends with the reason, and the next request has another runner."""
    last = None
    for event in client.responses.create(stream=True, **ENDLESS):
        if event.type == "response.output_text.delta":
            for child in daemon.children():
                child.kill()
        last = event
    assert last is not None
    assert last.type == "response.failed"
    assert last.response.error.message.startswith("an error was encountered while running the model")
    assert client.responses.create(**ENDLESS | {"max_output_tokens": 3}).usage.output_tokens == 3


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_whoever_leaves_in_the_middle_leaves_nothing(
    daemon: RealDaemon, client: Any, asynchronous: Any, how: str
) -> None:
    def read_a_piece() -> None:
        with client.responses.stream(**ENDLESS) as stream:
            assert any(event.type == "response.output_text.delta" for event in stream)

    with trio.fail_after(60):
        await asynchronous.responses.create(**ENDLESS | {"max_output_tokens": 1})
        log = DaemonLog(daemon.log_path)
        if how == "close":
            await trio.to_thread.run_sync(read_a_piece)
        else:
            with trio.CancelScope() as scope:
                async with asynchronous.responses.stream(**ENDLESS) as stream:
                    async for event in stream:
                        if event.type == "response.output_text.delta":
                            scope.cancel()
        await log.wait_for(r"POST /v1/responses 499", within=SOON)
        await log.wait_for(r"slot\s+release", within=SOON)
        await until(lambda: not log.open_requests(), SOON, lambda: log.text[-5_000:])
        answer = await asynchronous.responses.create(**ENDLESS | {"max_output_tokens": 3})
    assert answer.usage.output_tokens == 3


def test_chat_with_tools_and_thoughts(client: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": words(5)}]
    create = client.chat.completions.create
    (choice,) = create(model="thinker", messages=messages).choices
    assert (choice.message.reasoning.strip(), choice.message.content) == ("hm so", "yes.")
    tool = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
    (choice,) = create(model="caller", messages=messages, tools=[tool]).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1, "b": 2})
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "3"}]
    *_, finish = create(model="caller", messages=messages, tools=[tool], stream=True)
    assert finish.choices[0].finish_reason == "tool_calls"


def test_completions_and_embeddings(client: Any) -> None:
    asked = {"model": "tiny", "prompt": words(5), "max_tokens": 4, "temperature": 0, "logprobs": 2}
    (choice,) = client.completions.create(**asked).choices
    assert len(choice.logprobs.tokens) == len(choice.logprobs.text_offset) == 4
    assert all(len(entry) == 2 for entry in choice.logprobs.top_logprobs)
    pieces = list(client.completions.create(stream=True, **asked))
    assert "".join(piece.choices[0].text for piece in pieces) == choice.text
    # The client asks for base64 unless told otherwise.
    first, second = (
        client.embeddings.create(model="embedder", input=["w1 w2"], **form).data[0].embedding
        for form in ({}, {"encoding_format": "float"})
    )
    assert first == pytest.approx(second, abs=1e-6)
