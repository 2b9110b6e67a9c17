"""The official client of Anthropic's API against the real daemon with real runners."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import trio

from tests.support.api_client import ask
from tests.support.daemon_log import DaemonLog
from tests.support.real_daemon import RealDaemon
from tests.support.scripted_models import add_scripted_models
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import words
from tests.support.until import until

from .conftest import ONE_THREAD

anthropic = pytest.importorskip("anthropic", reason="the official client `anthropic` is not installed")

pytestmark = pytest.mark.real

QUESTION = [{"role": "user", "content": words(5)}]
TOOL = {
    "name": "add",
    "description": "the sum",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
SOON = 10.0
LET_GO = 4.0
"""Seconds; an endless answer takes eight or more."""
A_MOMENT = 0.5


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, tiny_models: Mapping[str, bytes]) -> Iterator[RealDaemon]:
    store = OllamaStore(tmp_path_factory.mktemp("anthropic") / "models")
    store.add("tiny:latest", tiny_models["tiny"], params=ONE_THREAD)
    add_scripted_models(store.root)
    with RealDaemon(store.root) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: RealDaemon) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=daemon.url, api_key="unused", max_retries=0) as made:
        yield made


def test_a_message(client: Any) -> None:
    asked = {"model": "tiny", "max_tokens": 6, "messages": QUESTION, "extra_body": {"temperature": 0}}
    message = client.messages.create(**asked)
    assert (message.role, message.stop_reason, message.usage.output_tokens) == ("assistant", "max_tokens", 6)
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    with client.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == block.text
        final = stream.get_final_message()
    assert (final.content[0].text, final.usage, final.stop_reason) == (block.text, message.usage, "max_tokens")
    assert stream.response.headers["request-id"].startswith("req_")


def test_thoughts(client: Any) -> None:
    asked = {"model": "thinker", "max_tokens": 50, "messages": QUESTION}
    message = client.messages.create(**asked)
    thoughts, text = message.content
    assert (thoughts.type, thoughts.thinking.strip(), text.text) == ("thinking", "hm so", "yes.")
    assert message.stop_reason == "end_turn"
    with client.messages.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        assert [block.type for block in stream.get_final_message().content] == ["thinking", "text"]
    assert kinds.count("thinking") > 1
    assert kinds.count("text") == 2
    # What came may be sent back as it is.
    history = [*QUESTION, {"role": "assistant", "content": message.content}, *QUESTION]
    assert client.messages.create(**asked | {"messages": history}).content[1].text == "yes."


def test_tools(client: Any) -> None:
    asked = {"model": "caller", "max_tokens": 50, "messages": QUESTION, "tools": [TOOL]}
    message = client.messages.create(**asked)
    text, call = message.content
    assert (message.stop_reason, text.text) == ("tool_use", "Let me see.")
    assert (call.type, call.name, call.input) == ("tool_use", "add", {"a": 1, "b": 2})
    with client.messages.stream(**asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert (final.content[1].input, final.stop_reason) == ({"a": 1, "b": 2}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "3"}
    history = [
        *QUESTION,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
    ]
    assert client.messages.create(**asked | {"messages": history}).stop_reason == "tool_use"


@pytest.mark.parametrize("model", ["tiny", "thinker", "caller"])
def test_count_tokens(client: Any, model: str) -> None:
    """As many as the runner says that it has read."""
    asked: dict[str, Any] = {"model": model, "messages": QUESTION, "system": "w9 w8"}
    if model == "caller":
        asked["tools"] = [TOOL]
    counted = client.messages.count_tokens(**asked).input_tokens
    assert counted == client.messages.create(max_tokens=1, **asked).usage.input_tokens


def test_stop_sequences_and_errors(client: Any) -> None:
    asked = {"max_tokens": 50, "messages": QUESTION}
    message = client.messages.create(model="caller", stop_sequences=[" see"], **asked)
    assert (message.content[0].text, message.stop_reason) == ("Let me", "end_turn")
    with pytest.raises(anthropic.NotFoundError, match="model 'nobody' not found") as caught:
        client.messages.create(model="nobody", **asked)
    assert caught.value.request_id == caught.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError, match="does not support tools"):
        client.messages.create(model="tiny", tools=[TOOL], **asked)
    with pytest.raises(anthropic.BadRequestError, match="exceeds the available context size"):
        client.messages.create(model="tiny", **asked | {"messages": [{"role": "user", "content": words(3000)}]})


ENDLESS: dict[str, Any] = {"model": "endless", "max_tokens": 30_000, "messages": QUESTION}


@pytest.fixture
async def asynchronous(daemon: RealDaemon) -> AsyncIterator[Any]:
    async with anthropic.AsyncAnthropic(base_url=daemon.url, api_key="unused", max_retries=0) as made:
        yield made


def test_an_error_in_the_middle(daemon: RealDaemon, client: Any) -> None:
    """The runner is killed: the client raises what is told, and the next request has another runner."""
    with client.messages.stream(**ENDLESS) as stream:
        assert next(stream.text_stream)
        for child in daemon.children():
            child.kill()
        with pytest.raises(anthropic.APIStatusError, match="an error was encountered while running the model"):
            stream.until_done()
    assert client.messages.create(**ENDLESS | {"max_tokens": 3}).usage.output_tokens == 3


async def test_it_does_not_try_again_what_was_stopped(daemon: RealDaemon) -> None:
    """Of its own accord it would: the status is 503."""
    log = DaemonLog(daemon.log_path)
    async with anthropic.AsyncAnthropic(base_url=daemon.url, api_key="unused", max_retries=2) as eager:

        async def is_refused() -> None:
            with pytest.raises(anthropic.InternalServerError, match="the model was stopped") as caught:
                await eager.messages.create(**ENDLESS, timeout=60)
            assert caught.value.status_code == 503

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(is_refused)
                await log.wait_for("gets endless:latest", within=30)
                await ask(daemon.port, "/api/stop", model="endless", mode="force")
    await log.wait_for(r"^POST /v1/messages 503 ", within=10)
    assert len(log.matching(r"^POST /v1/messages 503 ")) == 1  # earlier tests' requests may be told late


@pytest.mark.parametrize("how", ["cancel", "close", "timeout", "timeout of the blocking client"])
async def test_whoever_leaves_in_the_middle_leaves_nothing(
    daemon: RealDaemon, client: Any, asynchronous: Any, how: str
) -> None:
    def read_a_piece() -> None:
        with client.messages.stream(**ENDLESS) as stream:
            assert next(stream.text_stream)

    with trio.fail_after(60):
        await asynchronous.messages.create(**ENDLESS | {"max_tokens": 1})
        log = DaemonLog(daemon.log_path)
        if how == "close":
            await trio.to_thread.run_sync(read_a_piece)
        elif how == "timeout":
            with pytest.raises(anthropic.APITimeoutError):
                await asynchronous.messages.create(**ENDLESS, timeout=A_MOMENT)
        elif how == "timeout of the blocking client":
            with pytest.raises(anthropic.APITimeoutError):
                await trio.to_thread.run_sync(partial(client.messages.create, **ENDLESS, timeout=A_MOMENT))
        else:
            with trio.CancelScope() as scope:
                async with asynchronous.messages.stream(**ENDLESS) as stream:
                    async for _ in stream.text_stream:
                        scope.cancel()
        left = await log.wait_for(r"POST /v1/messages 499", within=SOON)
        idle = await log.wait_for(r"slot\s+release", within=SOON)
        assert (idle.at - left.at).total_seconds() < LET_GO
        await until(lambda: not log.open_requests(), SOON, lambda: log.text[-5_000:])
        message = await asynchronous.messages.create(**ENDLESS | {"max_tokens": 3})
    assert message.usage.output_tokens == 3
