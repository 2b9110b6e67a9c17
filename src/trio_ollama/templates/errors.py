"""What is wrong with a template."""

from __future__ import annotations

__all__ = ["TemplateError"]


class TemplateError(Exception):
    """A template that cannot be parsed, or cannot be rendered with the values given.

    `line` counts from 1, and is 0 where no line is to blame. The text is one sentence for whoever wrote the template.
    """

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.reason = reason
        self.line = line
