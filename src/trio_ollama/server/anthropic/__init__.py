"""Anthropic's dialect: `/v1/messages`. `/v1/messages/count_tokens` is ours, Ollama has no such route."""

from __future__ import annotations

from typing import Final

from trio_ollama.server.anthropic.messages import CountRequest, MessagesRequest, count_tokens, create_message
from trio_ollama.server.routes import RUN, Route
from trio_ollama.server.streaming import EVENT_STREAM

__all__ = ["ROUTES"]

POST: Final = ("POST",)
ANSWER: Final = ("application/json", EVENT_STREAM)

ROUTES: Final[tuple[Route, ...]] = (
    Route("/v1/messages", POST, create_message, MessagesRequest, RUN, media=ANSWER, inference=True),
    Route("/v1/messages/count_tokens", POST, count_tokens, CountRequest, RUN, inference=True),
)
