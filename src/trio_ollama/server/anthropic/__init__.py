"""Anthropic's dialect: `/v1/messages`. `/v1/messages/count_tokens` is ours, Ollama has no such route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from quart import Response

from trio_ollama.server.anthropic import messages

__all__ = ["ROUTES"]

ROUTES: Final[tuple[tuple[str, tuple[str, ...], Callable[..., Awaitable[Response]]], ...]] = (
    ("/v1/messages", ("POST",), messages.create_message),
    ("/v1/messages/count_tokens", ("POST",), messages.count_tokens),
)
"""Path, methods, view."""
