"""What may look on while a request is served: by default nobody, with `serve --record` its recorder."""

from __future__ import annotations

from collections.abc import Sequence

from trio_ollama.scheduler import Lease
from trio_ollama.server.inference.events import Done, Event

__all__ = ["Watch"]


class Watch:
    """Is told what becomes of one request. Nothing here may wait, or raise."""

    def granted(self, lease: Lease) -> None:
        """It may use a runner."""

    def failed(self, error: Exception | str) -> None:
        """Something went wrong, which need not be the end of it."""

    def heard(self, events: Sequence[Event], prompt_tokens: int) -> None:
        """The runner sent these; it has told by now that the prompt has so many tokens (0: it has not yet)."""

    def done(self, done: Done) -> None:
        """Its answer is whole."""

    def embedded(self, inputs: int, tokens: int) -> None:
        """All its texts have vectors."""
