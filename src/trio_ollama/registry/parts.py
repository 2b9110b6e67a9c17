"""A blob's parts: what is fetched in parallel, and how far each is, in small files that survive us.

    sha256-<hex>-partial        the bytes, each at its place
    sha256-<hex>-partial-<n>    {"N":0,"Offset":0,"Size":16000000,"Completed":8000000}

Names and contents are Ollama's, so that either can go on where the other stopped. The plan is our own: smaller parts,
begun in order, so that the beginning of the file is complete early and can be hashed while the rest is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from trio_ollama.models.files import read_bounded, remove

__all__ = ["Part", "PartFiles", "frontier", "plan"]

MOST: Final = 16
"""A part has at most so many times the least bytes."""


@dataclass(slots=True)
class Part:
    """A range of the blob; bytes."""

    number: int
    offset: int
    size: int
    completed: int = 0

    @property
    def position(self) -> int:
        """Where the next byte belongs."""
        return self.offset + self.completed

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def left(self) -> int:
        return self.size - self.completed


def plan(total: int, least: int, wanted: int) -> list[Part]:
    """The parts of a blob of this size, in order: about as many as `wanted`, with at least so many bytes each."""
    size = max(least, min(total // wanted, least * MOST))
    return [Part(number, offset, min(size, total - offset)) for number, offset in enumerate(range(0, total, size))]


def frontier(parts: Sequence[Part]) -> int:
    """How many bytes from the beginning are there."""
    return next((part.position for part in parts if part.left), parts[-1].end if parts else 0)


class _Record(msgspec.Struct, rename="pascal"):
    n: int
    offset: int
    size: int
    completed: int = 0


class PartFiles:
    """The part files of one partial file. All methods block on the disk and raise OSError."""

    def __init__(self, partial: Path) -> None:
        self._partial = partial

    def load(self, total: int) -> list[Part]:
        """The parts that an earlier download left, by offset; none unless they make up the whole blob."""
        try:
            records = [self._read(path) for path in self._paths()]
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, ValueError):
            return []
        parts = [Part(record.n, record.offset, record.size, record.completed) for record in records]
        parts.sort(key=lambda part: part.offset)
        end = 0
        for part in parts:
            if part.offset != end or part.size <= 0 or not 0 <= part.completed <= part.size:
                return []
            end = part.end
        return parts if end == total else []

    def save(self, part: Part) -> None:
        """Note how far a part is."""
        text = msgspec.json.encode(_Record(part.number, part.offset, part.size, part.completed))
        # In place: a part only grows, and so does our text; a kill leaves the old or the new one. The text of another
        # writer may have been longer: what follows the object is not looked at.
        descriptor = os.open(self._path(part.number), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, text, 0)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Forget all parts."""
        for path in self._paths():
            remove(path)

    @staticmethod
    def _read(path: Path) -> _Record:
        text, end, _ = read_bounded(path, 4096).partition(b"}")
        return msgspec.json.decode(text + end, type=_Record)

    def _path(self, number: int) -> Path:
        return self._partial.with_name(f"{self._partial.name}-{number}")

    def _paths(self) -> list[Path]:
        return list(self._partial.parent.glob(f"{self._partial.name}-*"))
