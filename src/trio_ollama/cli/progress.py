"""Signs of life on stderr while something takes long.

On a terminal bars and spinners (`bars`, with rich); anywhere else one plain line for each step, for pipes and logs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

import click

from trio_ollama.cli.client import Json

__all__ = ["Show", "progress", "spinner"]

Show = Callable[[Json], None]
"""To be given each object of a stream of progress: `{status, digest?, total?, completed?}`, sizes in bytes."""


@contextlib.contextmanager
def progress() -> Iterator[Show]:
    """Shows what it is given within the block."""
    if not _can_draw():
        yield _Lines().show
        return
    from trio_ollama.cli.bars import Display

    with Display() as display:
        yield display.show


@contextlib.contextmanager
def spinner(text: str) -> Iterator[None]:
    """A spinner for the length of the block; nothing stays of it."""
    if not _can_draw():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _can_draw() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class _Lines:
    """Each status once: repetitions (the same step, further on) are left out."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, message: Json) -> None:
        text = str(message.get("status", ""))
        if text and text != self._last:
            click.echo(text, err=True)
            self._last = text
