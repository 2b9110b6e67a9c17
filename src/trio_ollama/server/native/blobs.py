"""/api/blobs/<digest>: the files that models are made of."""

from __future__ import annotations

from typing import Final

from quart import Response, request

from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import BlobNotFoundError
from trio_ollama.server.asgi import empty_response, request_stack
from trio_ollama.server.services import services

__all__ = ["has_blob", "put_blob"]

PIECE: Final = 1 << 20
"""Bytes of an upload that are written at once: few enough to hold, enough to make the thread's start cheap."""


async def has_blob(digest: str) -> Response:
    """HEAD /api/blobs/<digest>."""
    at = services()
    if not await at.in_thread(at.store.blobs.has, Digest.parse(digest)):
        raise BlobNotFoundError(digest)
    return empty_response(200)


async def put_blob(digest: str) -> Response:
    """POST /api/blobs/<digest>: the body goes to disk as it comes, never more than a piece of it is in memory."""
    at = services()
    if await at.in_thread(at.store.blobs.has, Digest.parse(digest)):
        return empty_response(200)
    writer = await at.in_thread(at.store.open_upload, digest)
    request_stack().callback(writer.abort)  # harmless after the commit
    piece = bytearray()
    async for chunk in request.body:
        piece += chunk
        if len(piece) >= PIECE:
            await at.in_thread(writer.write, bytes(piece))
            piece.clear()
    await at.in_thread(writer.write, bytes(piece))
    await at.in_thread(writer.commit)
    return empty_response(201)
