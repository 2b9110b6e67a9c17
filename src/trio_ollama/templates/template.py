"""A parsed template: Go's text/template, as far as chat templates use it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from .evaluate import DEFAULT_LIMITS, Limits, evaluate
from .nodes import Nodes
from .parser import parse
from .values import Value

__all__ = ["Template"]


@dataclass(frozen=True, slots=True)
class Template:
    """The nodes of a template and of those it defines; `parse` makes one, and it never changes."""

    text: str
    root: Nodes
    defined: Mapping[str, Nodes] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raises TemplateError for what is no template, and for what this engine does not support."""
        parsed = parse(text)
        return cls(text, parsed.root, parsed.defined)

    def render(
        self, values: Mapping[str, Value], *, today: datetime.date | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> str:
        """The text for these values, which stay as they are; `today` is for currentDate (default: the local date).

        Raises TemplateError where Go would fail, and where a limit is reached.
        """
        return evaluate(self.root, self.defined, values, today or datetime.date.today(), limits)
