"""Ollama's own dialect: `/api/...`; `/api/devices` and `/api/fit` are ours, Ollama has no such routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from quart import Response

from trio_ollama.server.native import blobs, chat, create, embed, fit, generate, models, status

__all__ = ["ROUTES"]

ROUTES: Final[tuple[tuple[str, tuple[str, ...], Callable[..., Awaitable[Response]]], ...]] = (
    ("/", ("GET", "HEAD"), status.root),
    ("/api/version", ("GET", "HEAD"), status.version),
    ("/api/status", ("GET",), status.status),
    ("/api/ps", ("GET",), status.ps),
    ("/api/devices", ("GET",), fit.devices),
    ("/api/fit", ("POST",), fit.fit),
    ("/api/tags", ("GET", "HEAD"), models.tags),
    ("/api/show", ("POST",), models.show),
    ("/api/copy", ("POST",), models.copy),
    ("/api/delete", ("DELETE",), models.delete),
    ("/api/create", ("POST",), create.create),
    ("/api/blobs/<digest>", ("HEAD",), blobs.has_blob),
    ("/api/blobs/<digest>", ("POST",), blobs.put_blob),
    ("/api/generate", ("POST",), generate.generate),
    ("/api/chat", ("POST",), chat.chat),
    ("/api/embed", ("POST",), embed.embed),
    ("/api/embeddings", ("POST",), embed.embeddings),
)
"""Path, methods, view."""
