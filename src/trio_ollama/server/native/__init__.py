"""Ollama's own dialect: `/api/...`. `/api/devices`, `/api/fit`, `/api/requests`, `/api/stop` and `/openapi.json` are
ours, Ollama has no such routes (docs/api.md)."""

from __future__ import annotations

from typing import Final

from trio_ollama.server.native import blobs, cloud, create, fit, models, requests, status, stop, transfers
from trio_ollama.server.native.chat import ChatRequest, chat
from trio_ollama.server.native.embed import EmbeddingsRequest, EmbedRequest, embed, embeddings
from trio_ollama.server.native.generate import GenerateRequest, generate
from trio_ollama.server.routes import BODY, MODEL, RUN, Route
from trio_ollama.server.streaming import NDJSON

__all__ = ["ROUTES"]

GET: Final = ("GET",)
POST: Final = ("POST",)
READ: Final = ("GET", "HEAD")
DELETE: Final = ("DELETE",)
ANSWER: Final = ("application/json", NDJSON)
NAMED: Final = (*BODY, *MODEL)
NOTHING: Final[tuple[str, ...]] = ()

ROUTES: Final[tuple[Route, ...]] = (
    Route("/", READ, status.root, media=("text/plain",)),
    Route("/api/version", READ, status.version),
    Route("/api/status", GET, status.status),
    Route("/api/ps", GET, status.ps),
    Route("/api/devices", GET, fit.devices),
    Route("/api/fit", POST, fit.fit, fit.FitRequest, NAMED),
    Route("/api/requests", GET, requests.list_requests, answer=requests.RequestList),
    Route("/api/requests/<path:id>", DELETE, requests.cancel_request, errors=(404,), answer=requests.CanceledRequests),
    Route("/api/stop", POST, stop.stop, stop.StopRequest, NAMED, answer=stop.StopAnswer),
    Route("/api/tags", READ, models.tags),
    Route("/api/show", POST, models.show, models.ShowRequest, NAMED),
    Route("/api/copy", POST, models.copy, models.CopyRequest, NAMED, media=NOTHING),
    Route("/api/delete", DELETE, models.delete, models.NameRequest, NAMED, media=NOTHING),
    Route("/api/create", POST, create.create, create.CreateBody, NAMED, media=ANSWER),
    Route("/api/pull", POST, transfers.pull, transfers.TransferRequest, (*BODY, 403), media=ANSWER),
    Route("/api/push", POST, transfers.push, transfers.TransferRequest, (*BODY, 403, 404), media=ANSWER),
    Route("/api/blobs/<digest>", ("HEAD",), blobs.has_blob, errors=(400, 404), media=NOTHING),
    Route("/api/blobs/<digest>", POST, blobs.put_blob, errors=(400,), media=NOTHING, success=(200, 201), upload=True),
    Route("/api/generate", POST, generate, GenerateRequest, RUN, media=ANSWER, inference=True),
    Route("/api/chat", POST, chat, ChatRequest, RUN, media=ANSWER, inference=True),
    Route("/api/embed", POST, embed, EmbedRequest, RUN, inference=True),
    Route("/api/embeddings", POST, embeddings, EmbeddingsRequest, RUN, inference=True),
    *cloud.ROUTES,
)
