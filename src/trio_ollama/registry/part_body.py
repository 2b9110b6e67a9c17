"""A part of a file as the body of a request."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from trio_ollama.models.files import store_errors

from .errors import RegistryError
from .parts import Part

__all__ = ["PartBody"]

PIECE: Final = 1 << 20
"""Bytes that are read at once."""


class PartBody:
    """What is left of a part, piece by piece; `part.completed` grows with it, and `sent` is told.

    Nothing is open between two pieces, so it may be dropped at any time.
    """

    def __init__(self, path: Path, part: Part, sent: Callable[[], None]) -> None:
        self._path = path
        self._part = part
        self._sent = sent
        self._at = part.offset
        self._begin = part.position
        self._md5 = hashlib.md5(usedforsecurity=False)

    @property
    def digest(self) -> bytes:
        """MD5 of the whole part, with what was sent earlier, once all is sent."""
        return self._md5.digest()

    def __aiter__(self) -> PartBody:
        return self

    async def __anext__(self) -> bytes:
        self._part.completed = max(self._part.completed, self._at - self._part.offset)
        self._sent()
        while self._at < self._part.end:
            data = await trio.to_thread.run_sync(self._read, min(PIECE, self._part.end - self._at))
            skipped = max(0, self._begin - self._at)
            self._at += len(data)
            if len(data) > skipped:
                return data[skipped:]
        raise StopAsyncIteration

    def _read(self, length: int) -> bytes:
        with store_errors("read the model store"), open(self._path, "rb", buffering=0) as file:
            file.seek(self._at)
            data = file.read(length)
        if not data:
            raise RegistryError("a file became shorter while it was sent")
        self._md5.update(data)
        return data
