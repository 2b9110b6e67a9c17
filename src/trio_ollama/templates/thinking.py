"""Splits what a model writes into what it thinks and what it says, while it is still writing."""

from __future__ import annotations

import enum
from typing import NamedTuple

from .inspection import Tags
from .pieces import BLANKS, overlap

__all__ = ["Split", "ThinkingSplitter"]


class Split(NamedTuple):
    """Thinking, then content; either may be empty."""

    thinking: str = ""
    content: str = ""


class _State(enum.Enum):
    BEFORE = "may still begin to think"
    OPENED = "blanks after the opening tag"
    THINKING = "thinking"
    CLOSED = "blanks after the closing tag"
    CONTENT = "content"


class ThinkingSplitter:
    """Takes the pieces of one answer. How the text is cut into pieces makes no difference to the sums of the splits.

    A model that begins with anything but the opening tag does not think. `inside`: the prompt ended with that tag.
    """

    def __init__(self, tags: Tags, *, inside: bool = False) -> None:
        self.tags = tags
        self.state = _State.OPENED if inside else _State.BEFORE
        self.held = ""
        """Not yet decided: at most a tag's length, and the blanks in front of an opening tag."""

    def feed(self, text: str) -> Split:
        """What is known of the answer by now, and was not told before."""
        self.held += text
        thinking = ""
        if self.state is _State.BEFORE:
            self._open()
        if self.state is _State.OPENED:
            self.held = self.held.lstrip(BLANKS)
            if self.held:
                self.state = _State.THINKING
        if self.state is _State.THINKING:
            thinking = self._think()
        if self.state is _State.CLOSED:
            self.held = self.held.lstrip(BLANKS)
            if self.held:
                self.state = _State.CONTENT
        if self.state is not _State.CONTENT:
            return Split(thinking)
        content, self.held = self.held, ""
        return Split(thinking, content)

    def finish(self) -> Split:
        """The answer is over: what was held back is what it looks like."""
        text, self.held = self.held, ""
        return Split(thinking=text) if self.state is _State.THINKING else Split(content=text)

    def _open(self) -> None:
        found = self.held.lstrip(BLANKS)
        if found.startswith(self.tags.opening):
            self.held = found[len(self.tags.opening) :]
            self.state = _State.OPENED
        elif not self.tags.opening.startswith(found):
            self.state = _State.CONTENT

    def _think(self) -> str:
        thinking, closing, rest = self.held.partition(self.tags.closing)
        if closing:
            self.held = rest
            self.state = _State.CLOSED
            return thinking
        kept = overlap(self.held, self.tags.closing)
        thinking = self.held[: len(self.held) - kept]
        self.held = self.held[len(self.held) - kept :]
        return thinking
