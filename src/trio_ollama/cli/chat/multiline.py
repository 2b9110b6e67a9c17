'''Messages of several lines: what stands between `"""` and `"""` is one, in a system message as well.'''

from __future__ import annotations

import re
from typing import Final

__all__ = ["QUOTES", "plain", "unfinished"]

QUOTES: Final = '"""'
_SYSTEM: Final = re.compile(r"/set\s+system\s+(?=\"\"\")")


def unfinished(text: str) -> bool:
    """Whether a message has been opened and not closed, so that the end of a line does not end it."""
    _, text = _parts(text)
    return text.startswith(QUOTES) and not _is_closed(text)


def plain(text: str) -> str:
    """What was meant: without the quotes and the line ends next to them."""
    command, text = _parts(text)
    if _is_closed(text):
        text = text.removeprefix(QUOTES).rstrip().removesuffix(QUOTES).strip("\n")
    return command + text


def _parts(text: str) -> tuple[str, str]:
    """A command in front, and the message."""
    command = _SYSTEM.match(text)
    end = command.end() if command else 0
    return text[:end], text[end:]


def _is_closed(text: str) -> bool:
    text = text.rstrip()
    return text.startswith(QUOTES) and text.endswith(QUOTES) and len(text) >= 2 * len(QUOTES)
