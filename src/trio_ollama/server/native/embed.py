"""POST /api/embed, and /api/embeddings, its older form."""

from __future__ import annotations

from typing import Any

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.embedding import embed as embed_inputs
from trio_ollama.server.inference.embedding import normalized
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.options import merge
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.native.common import keep_alive_of
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services

__all__ = ["EmbedRequest", "EmbeddingsRequest", "embed", "embeddings", "texts"]


class EmbedRequest(msgspec.Struct):
    """The body of /api/embed."""

    model: str = ""
    input: Any = None
    truncate: bool = True
    dimensions: int = 0
    keep_alive: Any = None
    options: dict[str, Any] = {}


class EmbeddingsRequest(msgspec.Struct):
    """The body of /api/embeddings."""

    model: str = ""
    prompt: str = ""
    keep_alive: Any = None
    options: dict[str, Any] = {}


async def embed() -> Response:
    """Vectors of length 1 for one text or many; without any, the model is loaded."""
    clock, at = Clock(), services()
    body = await read(EmbedRequest, at.settings.max_body)
    keep_alive, inputs = keep_alive_of(body.keep_alive), texts(body.input)
    target = await find_target(at, body.model, WORDS["embed"])
    options = merge(target.model.params, body.options)
    result = await embed_inputs(
        at, request_stack(), target, options, inputs, keep_alive=keep_alive, truncate=body.truncate, clock=clock
    )
    answer: dict[str, Any] = {
        "model": body.model,
        "embeddings": [normalized(vector, body.dimensions) for vector in result.vectors],
    }
    if inputs:
        metrics = {
            "total_duration": clock.total_ns,
            "load_duration": clock.load_ns,
            "prompt_eval_count": result.tokens,
        }
        answer |= {name: value for name, value in metrics.items() if value}
    return json_reply(answer)


async def embeddings() -> Response:
    """One vector, as the runner made it; without a prompt, the model is loaded."""
    clock, at = Clock(), services()
    body = await read(EmbeddingsRequest, at.settings.max_body)
    keep_alive = keep_alive_of(body.keep_alive)
    target = await find_target(at, body.model, WORDS["embeddings"])
    options = merge(target.model.params, body.options)
    inputs = [body.prompt] if body.prompt else []
    result = await embed_inputs(
        at, request_stack(), target, options, inputs, keep_alive=keep_alive, truncate=True, clock=clock
    )
    return json_reply({"embedding": result.vectors[0] if inputs else []})


def texts(value: object) -> list[str]:
    """The inputs: a string, or a list of them. Raises `ApiError` 400."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ApiError(400, "invalid input type")
