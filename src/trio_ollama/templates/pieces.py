"""Searching in text that arrives in pieces."""

from __future__ import annotations

from typing import Final

__all__ = ["BLANKS", "overlap"]

BLANKS: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""What Go takes for white space."""


def overlap(text: str, tag: str) -> int:
    """Characters at the end of `text` that may be the beginning of `tag`: the most that fit, not the whole tag."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0
