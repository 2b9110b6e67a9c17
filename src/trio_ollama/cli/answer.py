"""Showing one answer while it streams."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType
from typing import Self

import click

from trio_ollama.cli.printable import Joined, printable
from trio_ollama.cli.progress import spinner

__all__ = ["AnswerPrinter"]


class AnswerPrinter:
    """Writes the pieces of an answer to stdout as they come, thinking set apart from text.

    On a terminal lines are wrapped between words (unless not `wrap`), thinking is grey, control characters are left
    out, and something moves until there is something to show. Anywhere else the text goes out as the model wrote it.
    A context manager: leaving it leaves the cursor at the start of a line, whether the answer is whole or was stopped.
    """

    def __init__(self, *, hide_thinking: bool = False, wrap: bool = True) -> None:
        self.text = ""
        """What was shown of the answer itself, before wrapping."""
        self.thoughts = ""
        """What the model thought, shown or not."""
        self._hide_thinking = hide_thinking
        self._terminal = sys.stdout.isatty()
        self._grey = self._terminal and not os.environ.get("NO_COLOR")
        self._wrap = None
        if self._terminal and wrap:
            from trio_ollama.cli.wordwrap import WordWrap

            self._wrap = WordWrap(lambda: os.get_terminal_size(sys.stdout.fileno()).columns)
        self._waiting = contextlib.ExitStack()
        self._joined = Joined()
        self._thinking = False
        self._at_line_start = True

    def __enter__(self) -> Self:
        if self._terminal:
            self._waiting.enter_context(spinner(""))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._waiting.close()
        if rest := self._joined.end():
            (self._think if self._thinking else self._say)(rest)
        self._end_thinking()
        if not self._at_line_start:
            self._write("\n")

    def piece(self, thinking: str, text: str) -> None:
        """The next piece of the stream; either part may be empty."""
        if thinking:
            self._think(self._joined.feed(thinking))
        if text:
            self._say(self._joined.feed(text))

    def _think(self, text: str) -> None:
        self.thoughts += text
        if text and not self._hide_thinking:
            if not self._thinking:
                self._thinking = True
                self._write("Thinking...\n", grey=True)
            self._write(text, grey=True)

    def _say(self, text: str) -> None:
        if text:
            self._end_thinking()
            self.text += text
            self._write(text)

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._write(("" if self._at_line_start else "\n") + "...done thinking.\n\n", grey=True)

    def _write(self, text: str, *, grey: bool = False) -> None:
        if self._terminal:
            text = printable(text)
        if not text:
            return
        self._waiting.close()
        self._at_line_start = text.endswith("\n")  # first: Ctrl-C may come in the middle of the writing
        if self._wrap is not None:
            text = self._wrap.feed(text)
        # Not `click.echo`: in a pipe it would take out what looks like a colour, and the text is the model's.
        sys.stdout.write(click.style(text, fg="bright_black") if grey and self._grey else text)
        sys.stdout.flush()
