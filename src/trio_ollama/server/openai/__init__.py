"""OpenAI's dialect: `/v1/...`."""

from __future__ import annotations

from typing import Final

from trio_ollama.server.openai.chat import ChatCompletionRequest, chat_completions
from trio_ollama.server.openai.completions import CompletionRequest, completions
from trio_ollama.server.openai.embeddings import OpenAIEmbeddingRequest, embeddings
from trio_ollama.server.openai.models import list_models, retrieve_model
from trio_ollama.server.openai.responses import ResponsesRequest, responses
from trio_ollama.server.openai.transcriptions import TranscriptionForm, transcriptions
from trio_ollama.server.routes import MODEL, RUN, Route
from trio_ollama.server.streaming import EVENT_STREAM

__all__ = ["ROUTES"]

GET: Final = ("GET",)
POST: Final = ("POST",)
ANSWER: Final = ("application/json", EVENT_STREAM)
SAID: Final = ("application/json", "text/plain")

ROUTES: Final[tuple[Route, ...]] = (
    Route("/v1/chat/completions", POST, chat_completions, ChatCompletionRequest, RUN, media=ANSWER, inference=True),
    Route("/v1/completions", POST, completions, CompletionRequest, RUN, media=ANSWER, inference=True),
    Route("/v1/embeddings", POST, embeddings, OpenAIEmbeddingRequest, RUN, inference=True),
    Route("/v1/responses", POST, responses, ResponsesRequest, RUN, media=ANSWER, inference=True),
    Route(
        "/v1/audio/transcriptions", POST, transcriptions, None, RUN, media=SAID, inference=True, form=TranscriptionForm
    ),
    Route("/v1/models", GET, list_models),
    Route("/v1/models/<model>", GET, retrieve_model, errors=MODEL),
)
