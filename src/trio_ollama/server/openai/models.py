"""GET /v1/models and /v1/models/<model>."""

from __future__ import annotations

from typing import Any

from quart import Response

from trio_ollama.models.model import Entry, Model
from trio_ollama.server.lookup import WORDS, find
from trio_ollama.server.replies import json_reply
from trio_ollama.server.services import services

__all__ = ["list_models", "retrieve_model"]


async def list_models() -> Response:
    """What is in the store, newest first."""
    at = services()
    entries = await at.in_thread(at.store.list)
    return json_reply({"object": "list", "data": [_described(entry, entry.name.short) for entry in entries]})


async def retrieve_model(model: str) -> Response:
    """One model, under the name it was asked for."""
    return json_reply(_described(await find(services(), model, WORDS["chat"]), model))


def _described(entry: Entry | Model, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(entry.modified_at.timestamp()),
        "owned_by": entry.name.namespace,
    }
