"""OpenAI's dialect: `/v1/...`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from quart import Response

from trio_ollama.server.openai import chat, completions, embeddings, models, responses

__all__ = ["ROUTES"]

ROUTES: Final[tuple[tuple[str, tuple[str, ...], Callable[..., Awaitable[Response]]], ...]] = (
    ("/v1/chat/completions", ("POST",), chat.chat_completions),
    ("/v1/completions", ("POST",), completions.completions),
    ("/v1/embeddings", ("POST",), embeddings.embeddings),
    ("/v1/responses", ("POST",), responses.responses),
    ("/v1/models", ("GET",), models.list_models),
    ("/v1/models/<model>", ("GET",), models.retrieve_model),
)
"""Path, methods, view."""
