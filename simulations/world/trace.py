"""Everything that happened in a run, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from trio_ollama.scheduler.core.events import Event

__all__ = ["Trace"]


class Trace(Sequence[str]):
    """Put into words when somebody reads it; most are never read."""

    def __init__(self) -> None:
        self._happened: list[tuple[float, str | Event]] = []

    def add(self, at: float, what: str | Event) -> None:
        self._happened.append((at, what))

    def __len__(self) -> int:
        return len(self._happened)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [_line(*what) for what in self._happened[index]]
        return _line(*self._happened[index])

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])


def _line(at: float, what: str | Event) -> str:
    return f"{at:10.3f} {what if isinstance(what, str) else what.text()}"
