"""The file of what was typed, `~/.ollama/history`: shared with Ollama, whose format is one line for each line typed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from .multiline import QUOTES, unfinished

__all__ = ["LONGEST", "MOST", "HistoryFile"]

MOST: Final = 1000
"""Entries that are kept; twice as many may be in the file, before it is cut."""
LONGEST: Final = 64 * 1024
"""Bytes of an entry that is kept: larger ones were no typing."""
READ: Final = 1024 * 1024
"""Bytes at the end of the file that are looked at; of a larger file no more is kept."""


class HistoryFile:
    """Entries of one or several lines. Those of several stand in `\"""`, so that they come back whole.

    Several programs may append at the same time. A file that cannot be read or written costs one warning and is left
    alone from then on: what was typed before is no reason to end a conversation.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._usable = True

    def read(self) -> list[str]:
        """The entries, oldest first; also cuts a file that has grown too long."""
        try:
            with self._path.open("rb") as file:
                length = file.seek(0, os.SEEK_END)
                file.seek(max(0, length - READ))
                lines = file.read(READ).decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            self._give_up(error)
            return []
        entries = list(_entries(lines[1:] if length > READ else lines))  # the first line may have lost its begin
        if len(entries) > 2 * MOST or length > READ:
            self._rewrite(entries[-MOST:])
        return entries[-MOST:]

    def append(self, entry: str) -> None:
        """Add what was typed."""
        data = _written(entry).encode("utf-8", "replace")
        if not self._usable or len(data) > LONGEST:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # In one call: lines of two programs do not mix.
            with _private(self._path, os.O_APPEND) as file:
                file.write(data)
        except OSError as error:
            self._give_up(error)

    def _rewrite(self, entries: Iterable[str]) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            with _private(temporary, os.O_TRUNC) as file:
                file.write("".join(map(_written, entries)).encode("utf-8", "replace"))
            temporary.replace(self._path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._usable = False
        click.echo(f"Warning: {self._path}: {error.strerror}; what you type is not kept", err=True)


def _private(path: Path, flag: int) -> io.FileIO:
    """For writing, without a buffer; nobody else may read what was typed."""
    return io.FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flag, 0o600), "w")


def _written(entry: str) -> str:
    if "\n" in entry and not entry.startswith(QUOTES) and f"{QUOTES}\n" not in entry:
        entry = f"{QUOTES}{entry}{QUOTES}"
    return f"{entry}\n"


def _entries(lines: list[str]) -> Iterator[str]:
    index = 0
    while index < len(lines):
        entry = lines[index]
        end = index + 1
        while unfinished(entry) and end < len(lines):
            entry = f"{entry}\n{lines[end]}"
            end += 1
        if unfinished(entry):  # never closed: lines of their own
            entry, end = lines[index], index + 1
        if entry.strip():
            yield entry
        index = end
