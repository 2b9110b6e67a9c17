"""Signs of life on stderr while something takes long: on a terminal only, so that pipes and logs stay clean."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import click

__all__ = ["Advance", "Statuses", "bar", "spinner"]

Advance = Callable[[int], None]
"""To be told of every so many bytes."""


@contextlib.contextmanager
def spinner(text: str) -> Iterator[None]:
    """A spinner for the length of the block."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextlib.contextmanager
def bar(text: str, total: int) -> Iterator[Advance]:
    """A progress bar over `total` bytes."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    parts = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda amount: progress.update(task, advance=amount)


class Statuses:
    """Prints each status text of a stream once; repetitions (the same step, further on) are left out."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, text: str) -> None:
        """The next status, one line on stderr."""
        if text != self._last:
            click.echo(text, err=True)
            self._last = text
