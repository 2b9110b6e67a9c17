"""/v1/completions and /v1/embeddings."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from tests.support.fake_scheduler import chat_end, chat_events
from trio_ollama.runners.contract import RunnerDiedError

from .conftest import Daemon, nothing_started

COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "hi"}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
ZEROS = dict.fromkeys(USAGE, 0)


async def test_completion(daemon: Daemon) -> None:
    answer = (await daemon.post("/v1/completions", COMPLETION | {"max_tokens": 3, "stop": "#"})).json
    assert answer.pop("id").startswith("cmpl-")
    assert answer.pop("created")
    assert answer == {
        "object": "text_completion",
        "model": "tiny",
        "system_fingerprint": "fp_ollama",
        "choices": [{"text": "Hello", "index": 0, "finish_reason": "stop"}],
        "usage": USAGE,
    }
    ((path, body),) = daemon.scheduler.calls
    assert path == "/v1/chat/completions"
    assert (body["messages"], body["n_predict"], body["stop"]) == ([{"role": "user", "content": "hi"}], 3, ["#"])
    assert (body["temperature"], body["top_p"]) == (1.0, 1.0)


@pytest.mark.parametrize("include", [True, False])
async def test_completion_stream(daemon: Daemon, include: bool) -> None:
    body = COMPLETION | {"stream": True, "stream_options": {"include_usage": include}}
    *events, done = (await daemon.post("/v1/completions", body)).events
    assert done == "[DONE]"
    if include:
        last = events.pop()
        assert (last["choices"], last["usage"]) == ([], USAGE)
    choices = [event["choices"][0] for event in events]
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [
        ("Hel", None),
        ("lo", None),
        ("", "stop"),
    ]
    assert all(event.get("usage") == (ZEROS if include else None) for event in events)


async def test_completion_that_breaks_off(daemon: Daemon) -> None:
    daemon.scheduler.script = lambda path, body: [chat_events("a"), RunnerDiedError("signal SIGKILL")]
    events = (await daemon.post("/v1/completions", COMPLETION | {"stream": True})).events
    assert "signal SIGKILL" in events[-1]["error"]["message"]


async def test_a_completion_of_nothing_loads(daemon: Daemon) -> None:
    answer = (await daemon.post("/v1/completions", {"model": "bare"})).json
    assert answer["choices"] == [{"text": "", "index": 0, "finish_reason": "load"}]
    assert len(daemon.scheduler.demands) == 1
    assert not daemon.scheduler.calls


async def test_thoughts_are_no_part_of_a_completion(daemon: Daemon) -> None:
    script = [[*chat_events("hm", thinking=True), *chat_events("yes"), chat_end()]]
    daemon.scheduler.script = lambda path, body: script
    body = COMPLETION | {"model": "thinker"}
    assert (await daemon.post("/v1/completions", body)).json["choices"][0]["text"] == "yes"


def embeds(daemon: Daemon) -> None:
    daemon.scheduler.answers["/v1/embeddings"] = lambda body: {
        "data": [{"embedding": [3.0, float(len(body["input"]))]}],
        "usage": {"prompt_tokens": 2},
    }


@pytest.mark.parametrize("form", ["float", "base64", "", "FLOAT"])
async def test_embeddings(daemon: Daemon, form: str) -> None:
    embeds(daemon)
    body = {"model": "vectors", "input": ["four", ""], "encoding_format": form}
    answer = (await daemon.post("/v1/embeddings", body)).json
    assert (answer["object"], answer["model"]) == ("list", "vectors")
    assert answer["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    first, second = answer["data"]
    assert (first["object"], first["index"], second["index"]) == ("embedding", 0, 1)
    vector = first["embedding"]
    if form == "base64":
        vector = struct.unpack("<2f", base64.b64decode(vector))
    assert vector == pytest.approx([0.6, 0.8])


async def test_an_empty_text_counts(daemon: Daemon) -> None:
    embeds(daemon)
    assert len((await daemon.post("/v1/embeddings", {"model": "vectors", "input": ""})).json["data"]) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"input": None}, "invalid input"),
        ({"input": []}, "invalid input"),
        ({"input": [1, 2]}, "invalid input type"),
        (
            {"encoding_format": "int8"},
            "Invalid value for 'encoding_format' = int8. Supported values: ['float', 'base64'].",
        ),
    ],
)
async def test_embeddings_refused(daemon: Daemon, change: Any, text: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post("/v1/embeddings", {"model": "vectors", "input": "a"} | change)
    assert (answer.status, answer.json["error"]["message"]) == (400, text)


@pytest.mark.parametrize("stream", [True, False])
async def test_completion_logprobs(daemon: Daemon, stream: bool) -> None:
    """In the older shape, which the official client knows for this route."""
    events = chat_events("hé", "y")
    for event, logprob in zip(events, (-0.5, -1.0), strict=True):
        token = event["choices"][0]["delta"]["content"]
        top = [{"token": token, "logprob": logprob}, {"token": "?", "logprob": -3.0}]
        entry = {"token": token, "logprob": logprob, "top_logprobs": top}
        event["choices"][0]["logprobs"] = {"content": [entry]}
    daemon.scheduler.script = lambda path, body: [[*events, chat_end()]]
    answer = await daemon.post("/v1/completions", COMPLETION | {"logprobs": 2, "stream": stream})
    body = daemon.scheduler.calls[0][1]
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    whole = {
        "tokens": ["hé", "y"],
        "token_logprobs": [-0.5, -1.0],
        "top_logprobs": [{"hé": -0.5, "?": -3.0}, {"y": -1.0, "?": -3.0}],
        "text_offset": [0, 2],
    }
    if stream:
        *pieces, _, done = answer.events
        assert done == "[DONE]"
        told = [piece["choices"][0]["logprobs"] for piece in pieces]
        assert told == [{name: [values[at]] for name, values in whole.items()} for at in (0, 1)]
    else:
        assert answer.json["choices"][0]["logprobs"] == whole


async def test_completion_logprobs_without_alternatives(daemon: Daemon) -> None:
    (event,) = chat_events("a")
    event["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}]}
    daemon.scheduler.script = lambda path, body: [[event, chat_end()]]
    answer = await daemon.post("/v1/completions", COMPLETION | {"logprobs": 0})
    assert answer.json["choices"][0]["logprobs"]["top_logprobs"] is None


@pytest.mark.parametrize("include", [True, False])
async def test_a_stream_of_nothing_loads(daemon: Daemon, include: bool) -> None:
    body = {"model": "bare", "stream": True, "stream_options": {"include_usage": include}}
    answer = await daemon.post("/v1/completions", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    first, *_, done = answer.events
    assert (first["choices"][0]["finish_reason"], done) == ("load", "[DONE]")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"logprobs": 21}, "top_logprobs must be between 0 and 20"),
        ({"logprobs": True}, 'field "logprobs": Expected `int | null`, got `bool`'),
        ({"prompt": ["a", "b"]}, 'field "prompt": Expected `str`, got `array`'),
        ({"suffix": "!"}, "registry.ollama.ai/library/tiny:latest does not support insert"),
        ({"model": "bare"}, 'model "bare" has no chat template, and none is stored with it'),
    ],
)
async def test_completion_refused(daemon: Daemon, change: Any, text: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post("/v1/completions", COMPLETION | change)
    assert (answer.status, answer.json["error"]["message"]) == (400, text)
