"""Breaking lines between words while they are being written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rich.cells import cell_len

__all__ = ["WordWrap"]

TAB: Final = 8
NARROW: Final = 10
"""Columns of a terminal in which nothing is wrapped any more."""
JOINER: Final = "\u200d"
CLOSING: Final = frozenset("、。，．：；！？）］｝」』】〉》”’…ー")
"""Wide characters that begin no line."""


class WordWrap:
    """Takes a text piece by piece and gives what to write of it at once, with line ends put between words.

    A word shows while it grows; when it turns out too long for the rest of its line, it is erased there and written
    again on the next one. `columns` tells the width of the terminal, which may change. Widths are in cells: wide
    characters take two and may be parted from their neighbours, marks that combine take none.
    """

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns
        self._begin = 0
        """Cells of the line before the word."""
        self._word = ""

    def feed(self, text: str) -> str:
        """What to write for the next piece."""
        # The last column stays free: there, terminals differ in where the cursor is.
        limit = self._columns() - 1
        if limit < NARROW:
            return text
        return "".join(self._next(character, limit) for character in text)

    def _next(self, character: str, limit: int) -> str:
        if character == "\n":
            self._begin, self._word = 0, ""
            return character
        if character in " \t":
            return self._blank(character, limit)
        if self._word and self._may_part(character):
            self._begin, self._word = self._begin + cell_len(self._word), ""
        grown = self._word + character
        if self._begin + cell_len(grown) <= limit:
            self._word = grown
            return character
        if self._begin == 0:  # longer than a line
            self._word = character
            return f"\n{character}"
        erased = cell_len(self._word)
        self._begin, self._word = 0, grown
        return (f"\x1b[{erased}D\x1b[K" if erased else "") + f"\n{grown}"

    def _blank(self, character: str, limit: int) -> str:
        begin = self._begin + cell_len(self._word)
        end = begin + 1 if character == " " else (begin // TAB + 1) * TAB
        self._begin, self._word = min(end, limit), ""
        return character if end <= limit else ""  # past the line: its end stands for it, if another word comes

    def _may_part(self, character: str) -> bool:
        """Whether a line may end between the word and this character although there is no blank."""
        if self._word.endswith(JOINER) or character in CLOSING or cell_len(character) == 0:
            return False
        return cell_len(character) == 2 or cell_len(self._word[-1]) == 2
