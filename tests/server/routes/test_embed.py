"""POST /api/embed and /api/embeddings: one lease for all inputs, a slot for each."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trio_ollama.runners.contract import RunnerDiedError, RunnerRefusedError

from .conftest import Daemon

EMBED = {"model": "vectors", "input": "a"}


def vector(*components: Any, tokens: int = 3) -> dict[str, Any]:
    return {"data": [{"embedding": list(components), "index": 0}], "usage": {"prompt_tokens": tokens}}


def answers(daemon: Daemon, **by_input: Any) -> None:
    daemon.scheduler.answers["/v1/embeddings"] = lambda body: by_input[body["input"]]


async def test_vectors_in_order_with_length_one(daemon: Daemon) -> None:
    answers(daemon, a=vector(3.0, 4.0), b=vector(0.0, 0.0))
    answer = await daemon.post("/api/embed", EMBED | {"input": ["a", "b", "a"]})
    assert answer.json["model"] == "vectors"
    assert answer.json["embeddings"] == [[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]
    assert answer.json["prompt_eval_count"] == 9
    assert answer.json["total_duration"] >= answer.json["load_duration"] > 0
    (lease,) = daemon.scheduler.leases
    assert lease.slot_uses == 3
    (demand,) = daemon.scheduler.demands
    assert (demand.slot, demand.options.embeddings, demand.model.pooled) == (False, True, True)


async def test_dimensions(daemon: Daemon) -> None:
    answers(daemon, a=vector(3.0, 4.0, 12.0))
    for dimensions, length in ((2, 2), (3, 3), (9, 3), (0, 3)):
        answer = await daemon.post("/api/embed", EMBED | {"dimensions": dimensions})
        (components,) = answer.json["embeddings"]
        assert len(components) == length
        assert math.hypot(*components) == pytest.approx(1)


async def test_a_completion_model_embeds_too(daemon: Daemon) -> None:
    answers(daemon, a=vector(1.0))
    assert (await daemon.post("/api/embed", EMBED | {"model": "tiny"})).status == 200


@pytest.mark.parametrize("value", [None, "", []])
async def test_nothing_to_embed_loads_the_model(daemon: Daemon, value: Any) -> None:
    answer = await daemon.post("/api/embed", {"model": "vectors", "input": value})
    assert answer.json == {"model": "vectors", "embeddings": []}
    assert len(daemon.scheduler.demands) == 1
    assert (await daemon.post("/api/embeddings", {"model": "vectors"})).json == {"embedding": []}


@pytest.mark.parametrize("bad", [None, math.inf])
async def test_not_a_number(daemon: Daemon, bad: Any) -> None:
    answers(daemon, a=vector(1.0, bad))
    answer = await daemon.post("/api/embed", EMBED)
    assert (answer.status, answer.json["error"]) == (400, "embedding contains NaN or Inf values")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunnerRefusedError(501, "not here"), 501),
        (RunnerRefusedError(400, "Input content cannot be empty"), 400),
        (RunnerDiedError("signal SIGKILL"), 500),
    ],
)
async def test_the_first_failure_ends_the_request(daemon: Daemon, error: Exception, status: int) -> None:
    answers(daemon, a=vector(1.0), b=error)
    answer = await daemon.post("/api/embed", EMBED | {"input": ["a", "b", "a"]})
    assert (answer.status, answer.json["error"]) == (status, str(error))
    assert len(daemon.scheduler.calls) == 2
    # DIFF: upstream says 500 here, whatever it was; a 400 says that it is the input.
    answer = await daemon.post("/api/embeddings", {"model": "vectors", "prompt": "b"})
    assert (answer.status, answer.json["error"]) == (status, str(error))


class Long:
    """A runner that takes so many tokens at once, of one character each, and adds two of its own."""

    def __init__(self, daemon: Daemon, *, context: int, batch: int, fits: int) -> None:
        self.fits = fits
        daemon.scheduler.context, daemon.scheduler.batch = context, batch
        daemon.scheduler.answers = {
            "/v1/embeddings": self.embed,
            "/tokenize": self.tokenize,
        }

    def tokenize(self, body: dict[str, Any]) -> Any:
        plain = [ord(letter) for letter in body["content"]]
        return {"tokens": [1, *plain, 2] if body["add_special"] else plain}

    def embed(self, body: dict[str, Any]) -> Any:
        given = body["input"]
        if isinstance(given, list):
            assert (given[0], given[-1], set(given[1:-1])) == (1, 2, {ord("x")})
        size = len(given) + 2 * isinstance(given, str)
        if size > self.fits:
            text = f"input ({size} tokens) is too large to process. increase the physical batch size"
            return RunnerRefusedError(500, text)
        return vector(1.0, tokens=size)


@pytest.mark.parametrize(
    ("context", "batch", "fits", "tokens"), [(50, 100, 50, 50), (50, 20, 20, 20), (10, 10, 10, 10)]
)
async def test_a_long_input_is_cut(daemon: Daemon, context: int, batch: int, fits: int, tokens: int) -> None:
    Long(daemon, context=context, batch=batch, fits=fits)
    answer = await daemon.post("/api/embed", EMBED | {"input": "x" * 100})
    assert (answer.status, answer.json.get("prompt_eval_count")) == (200, tokens)


@pytest.mark.parametrize(
    ("context", "fits", "truncate", "text"),
    [
        (50, 50, False, "the input length exceeds the context length"),
        (2, 2, True, "input after truncation exceeds maximum context length"),
        (50, 5, True, "input exceeds maximum context length and cannot be truncated further"),
    ],
)
async def test_what_cannot_be_cut(daemon: Daemon, context: int, fits: int, truncate: bool, text: str) -> None:
    Long(daemon, context=context, batch=context, fits=fits)
    answer = await daemon.post("/api/embed", EMBED | {"input": "x" * 100, "truncate": truncate})
    assert (answer.status, answer.json["error"]) == (400, text)


async def test_the_older_form_is_not_normalized(daemon: Daemon) -> None:
    answers(daemon, a=vector(3.0, 4.0))
    answer = await daemon.post("/api/embeddings", {"model": "vectors", "prompt": "a"})
    assert answer.json == {"embedding": [3.0, 4.0]}
