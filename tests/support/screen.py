"""What a terminal shows of a text with control codes: the few codes that progress displays use."""

from __future__ import annotations

import re

__all__ = ["screen"]

_CODE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


def screen(text: str) -> list[str]:
    """The lines at the end, without blanks behind and empty lines below. ValueError for any other code."""
    lines, row, column = [""], 0, 0
    for match in _CODE.finditer(text):
        private, numbers, letter = match.group(1), match.group(2), match.group(3)
        piece = match.group()
        if letter is None and piece == "\r":
            column = 0
        elif letter is None and piece == "\n":
            row, column = row + 1, 0
            if row == len(lines):
                lines.append("")
        elif letter is None:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + piece + line[column + len(piece) :]
            column += len(piece)
        elif letter == "A":
            row = max(0, row - int(numbers or 1))
        elif letter == "K" and numbers == "2":
            lines[row] = ""
        elif letter != "m" and not (private and letter in "hl"):
            raise ValueError(f"unknown control code {piece!r}")
    while lines and not lines[-1].strip():
        lines.pop()
    return [line.rstrip() for line in lines]
