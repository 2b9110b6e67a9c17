"""Showing one answer while it streams, and its statistics afterwards."""

from __future__ import annotations

import sys

import click

from trio_ollama.cli.client import Json
from trio_ollama.cli.format import columns, duration

__all__ = ["AnswerPrinter", "statistics"]

SECOND = 1_000_000_000


class AnswerPrinter:
    """Writes the pieces of an answer to stdout as they come, thinking (grey on a terminal) set apart from text."""

    def __init__(self, *, hide_thinking: bool = False) -> None:
        self.text = ""
        """What was shown of the answer itself."""
        self._hide_thinking = hide_thinking
        self._thinking = False
        self._at_line_start = True

    def piece(self, thinking: str, text: str) -> None:
        """The next piece of the stream; either part may be empty."""
        if thinking and not self._hide_thinking:
            if not self._thinking:
                self._thinking = True
                self._write("Thinking...\n", grey=True)
            self._write(thinking, grey=True)
        if text:
            self._end_thinking()
            self.text += text
            self._write(text)

    def end(self) -> None:
        """Leave the cursor at the start of a line, whether the answer is whole or was stopped."""
        self._end_thinking()
        if not self._at_line_start:
            self._write("\n")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            self._write(("" if self._at_line_start else "\n") + "...done thinking.\n\n", grey=True)

    def _write(self, text: str, *, grey: bool = False) -> None:
        self._at_line_start = text.endswith("\n")  # first: Ctrl-C may come in the middle of the writing
        # Not `click.echo`: in a pipe it would take out what looks like a colour, and the text is the model's.
        sys.stdout.write(click.style(text, fg="bright_black") if grey and sys.stdout.isatty() else text)
        sys.stdout.flush()


def statistics(final: Json) -> str:
    """The counts and times of the last object of an answer, one line each; what is zero is left out."""
    rows = []
    for name, count, nanoseconds in (
        ("total", "", "total_duration"),
        ("load", "", "load_duration"),
        ("prompt eval", "prompt_eval_count", "prompt_eval_duration"),
        ("eval", "eval_count", "eval_duration"),
    ):
        tokens, time = final.get(count, 0), final.get(nanoseconds, 0)
        if tokens:
            rows.append((f"{name} count:", f"{tokens} token(s)"))
        if time:
            rows.append((f"{name} duration:", duration(time)))
        if tokens and time:
            rows.append((f"{name} rate:", f"{tokens * SECOND / time:.2f} tokens/s"))
    return columns(rows)
