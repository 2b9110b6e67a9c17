"""The models that requests asked for last, resolved: a manifest's digest says when that has become old."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from trio_ollama.models.gguf import Metadata
from trio_ollama.models.model import Entry, Model
from trio_ollama.scheduler import ModelFacts
from trio_ollama.templates import GoTemplate, Mode

__all__ = ["Target", "TargetCache"]

ENTRIES: Final = 128


@dataclass(frozen=True, slots=True)
class Target:
    """A model that a request wants to use, and what its files say of it."""

    model: Model
    metadata: Metadata
    capabilities: frozenset[str]
    facts: ModelFacts
    given: str
    """The name as the request has it; it comes back in the answer and in error texts."""
    mode: Mode
    """Who makes the prompts of conversations."""
    stored: GoTemplate | None = None
    """The Go template among its layers, whoever makes the prompts."""


class TargetCache:
    """At most `ENTRIES` targets, the least recently used go first; safe to use from several threads.

    A name that has got another manifest since is another key, so nothing stale is ever found. Weights that have been
    removed are: the entry does not count then, and reading the model says what is wrong.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Target] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, entry: Entry) -> Target | None:
        """Blocking, for a look at the weights file."""
        key = (entry.name.full, entry.digest)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        if found is None or found.model.weights_path is None or not found.model.weights_path.is_file():
            return None
        return found

    def put(self, entry: Entry, target: Target) -> None:
        digest = target.model.digest  # another than the entry's if the model was replaced while it was read
        with self._lock:
            self._kept[entry.name.full, digest] = target
            while len(self._kept) > ENTRIES:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)
