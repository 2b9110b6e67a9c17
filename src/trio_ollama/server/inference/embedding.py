"""Vectors for texts: one lease for the request, one slot and one runner call for each input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from trio_ollama.runners.contract import RunnerRefusedError
from trio_ollama.scheduler import Lease
from trio_ollama.server.demand import demand
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.completion import tokenize
from trio_ollama.server.inference.generation import Clock, acquire, report_out_of_memory
from trio_ollama.server.lookup import Target
from trio_ollama.server.services import Services

__all__ = ["Embeddings", "embed", "normalized"]

EMBEDDINGS: Final = "/v1/embeddings"
TOO_LONG: Final = "the input length exceeds the context length"
_TOO_LONG_MARKS: Final = (
    *("too large", "context size", "context length", "physical batch size", "exceeds the available context"),
)


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors in the order of the inputs, as the runner made them; tokens of all inputs together."""

    vectors: list[list[float]]
    tokens: int


async def embed(
    services: Services,
    stack: AsyncExitStack,
    target: Target,
    options: Mapping[str, Any],
    inputs: Sequence[str],
    *,
    keep_alive: int | None,
    truncate: bool,
    clock: Clock,
) -> Embeddings:
    """Embed all inputs, or raise for the first that fails; without inputs the model is loaded, no more.

    R10: the inputs of a long request take turns with other requests, and all stop together.
    """
    wanted = demand(services, target, options, keep_alive=keep_alive, embeddings=True, slot=False)
    lease = await acquire(services, stack, wanted, clock)
    vectors, tokens = [], 0
    for text in inputs:
        async with lease.slot():
            try:
                vector, count = await _embed_one(lease, text, truncate)
            except Exception as error:
                clock.watch.failed(error)
                raise
        vectors.append(vector)
        tokens += count
    lease.release()
    clock.watch.embedded(len(inputs), tokens)
    return Embeddings(vectors, tokens)


def normalized(vector: Sequence[float], dimensions: int = 0) -> list[float]:
    """The first `dimensions` components (0: all), scaled to length 1. Zero stays zero."""
    if 0 < dimensions < len(vector):
        vector = vector[:dimensions]
    length = math.hypot(*vector)
    return [component / length for component in vector] if length else list(vector)


async def _embed_one(lease: Lease, text: str, truncate: bool) -> tuple[list[float], int]:
    try:
        return await _ask(lease, text)
    except RunnerRefusedError as error:
        if not _too_long(error):
            raise
        if not truncate:
            raise ApiError(400, TOO_LONG) from None
    # Only now is it worth knowing how long the text is. The runner's own tokens stay round what is kept of it.
    whole, plain = await tokenize(lease, text), await tokenize(lease, text, special=False)
    added = len(whole) - len(plain)
    front = next((count for count in range(added + 1) if whole[count : count + len(plain)] == plain), 0)
    for limit in sorted({lease.context - added, min(lease.context, lease.batch) - added}, reverse=True):
        if limit < 1:
            raise ApiError(400, "input after truncation exceeds maximum context length")
        if limit >= len(plain):
            continue
        try:
            return await _ask(lease, [*whole[:front], *plain[:limit], *whole[front + len(plain) :]])
        except RunnerRefusedError as error:
            if not _too_long(error):
                raise
    raise ApiError(400, "input exceeds maximum context length and cannot be truncated further")


async def _ask(lease: Lease, text: str | list[int]) -> tuple[list[float], int]:
    try:
        answer = await lease.ask(EMBEDDINGS, {"input": text})
    except Exception as error:
        report_out_of_memory(lease, error)
        raise
    vector = answer["data"][0]["embedding"]
    # JSON has no word for NaN: the runner writes null.
    if not all(isinstance(component, int | float) and math.isfinite(component) for component in vector):
        raise ApiError(400, "embedding contains NaN or Inf values")
    return vector, answer.get("usage", {}).get("prompt_tokens", 0)


def _too_long(error: RunnerRefusedError) -> bool:
    text = str(error).lower()
    return any(mark in text for mark in _TOO_LONG_MARKS)
