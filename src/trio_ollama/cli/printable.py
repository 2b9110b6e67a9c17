"""What a model says, made fit for a terminal: whole characters, and none that would command it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Joined", "printable"]

_CONTROLS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)]) | {ord(each): each for each in "\n\t"}
"""C0 with ESC, DEL and C1, which some terminals obey as if ESC came before it; line ends and tabs are text."""

_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_HALF: Final = re.compile("[\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without control characters: no model moves the cursor, sets the title or writes to the clipboard."""
    return text.translate(_CONTROLS)


class Joined:
    """Puts characters together whose halves came in two pieces, as JSON's `\\ud83d` and `\\ude00` may.

    A half that stays alone becomes U+FFFD: no stream can encode it.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """As much of the text as has come whole."""
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return _whole(text)

    def end(self) -> str:
        """What was still being waited for."""
        half, self._half = self._half, ""
        return _whole(half)


def _whole(text: str) -> str:
    pairs = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _HALF.sub("\ufffd", pairs)
