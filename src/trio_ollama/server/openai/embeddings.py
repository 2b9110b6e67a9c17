"""POST /v1/embeddings."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.embedding import embed, normalized
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.options import merge
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services

__all__ = ["OpenAIEmbeddingRequest", "embeddings"]


class OpenAIEmbeddingRequest(msgspec.Struct):
    """The body; fields that are not here are ignored."""

    model: str = ""
    input: Any = None
    dimensions: int = 0
    encoding_format: str = "float"


async def embeddings() -> Response:
    """Vectors of length 1 for one text or many."""
    clock, at = Clock(), services()
    body = await read(OpenAIEmbeddingRequest, at.settings.max_body)
    form = body.encoding_format.lower() or "float"
    if form not in ("float", "base64"):
        text = f"Invalid value for 'encoding_format' = {body.encoding_format}."
        raise ApiError(400, f"{text} Supported values: ['float', 'base64'].")
    inputs = _inputs(body.input)
    target = await find_target(at, body.model, WORDS["embed"])
    result = await embed(
        at,
        request_stack(),
        target,
        merge(target.model.params, {}),
        inputs,
        keep_alive=None,
        truncate=True,
        clock=clock,
    )
    vectors = [normalized(vector, body.dimensions) for vector in result.vectors]
    data = [
        {"object": "embedding", "embedding": _packed(vector) if form == "base64" else vector, "index": index}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": result.tokens, "total_tokens": result.tokens}
    return json_reply({"object": "list", "data": data, "model": body.model, "usage": usage})


def _inputs(value: object) -> list[str]:
    """The texts: unlike the native route, an empty one counts and none at all is refused."""
    if isinstance(value, str):
        return [value]
    if value is None or value == []:
        raise ApiError(400, "invalid input")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    raise ApiError(400, "invalid input type")


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
