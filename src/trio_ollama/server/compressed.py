"""Request bodies that come compressed, undone piece by piece: none may become larger than a plain one may be."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

__all__ = ["PIECE", "BrokenBodyError", "Zstd", "unpacker"]

PIECE: Final = 1 << 20
"""Bytes that come out at once."""
_WINDOW: Final = 23
"""Binary logarithm of the most memory that a stream may make us keep: 8 MiB, as upstream."""


class BrokenBodyError(Exception):
    """What came is not what its header says."""


class Zstd:
    """A body of one zstd frame or several."""

    def __init__(self) -> None:
        self._library = _library()
        self._frame = self._next()
        self._begun = False

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """What the next part of the body becomes, at most `PIECE` bytes at a time. Raises `BrokenBodyError`."""
        self._begun = self._begun or bool(chunk)
        while chunk or not (self._frame.needs_input or self._frame.eof):
            if self._frame.eof:
                self._frame = self._next()
            try:
                piece = self._frame.decompress(chunk, PIECE)
            except self._library.ZstdError:
                raise BrokenBodyError from None
            chunk = self._frame.unused_data
            yield piece

    def end(self) -> None:
        """The body is over. Raises `BrokenBodyError` in the middle of a frame."""
        if self._begun and not self._frame.eof:
            raise BrokenBodyError

    def _next(self) -> Any:
        return self._library.ZstdDecompressor(options={self._library.DecompressionParameter.window_log_max: _WINDOW})


class Plain:
    """A body as it is."""

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def end(self) -> None:
        pass


def unpacker(encoding: str) -> Plain | Zstd:
    """By what the header Content-Encoding says. As with upstream, only zstd means something: a client of OpenAI's sends
    it; names of character sets, which others put there, do not matter."""
    return _UNPACKERS.get(encoding.strip().lower(), Plain)()


def _library() -> ModuleType:
    """The standard library's from Python 3.14 on, before that its backport; loaded by the first that needs it."""
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


_UNPACKERS: Final[dict[str, Callable[[], Plain | Zstd]]] = {"zstd": Zstd}
