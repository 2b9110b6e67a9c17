"""The terminal while the model speaks."""

from __future__ import annotations

import contextlib
import sys
import termios
from collections.abc import Iterator

__all__ = ["without_echo"]


@contextlib.contextmanager
def without_echo() -> Iterator[None]:
    """What is typed within the block does not show in the middle of the answer; it waits for the next prompt.

    Keys like Ctrl-C keep their meaning.
    """
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    silent = [*before]
    silent[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
