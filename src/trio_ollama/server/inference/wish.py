"""What a request for text wants, whatever its dialect and route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trio_ollama.server.inference.modes import Format, Think
from trio_ollama.server.lookup import Target

__all__ = ["Wish"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request for text wants, in no dialect. `options` are merged, `keep_alive` is in nanoseconds."""

    target: Target
    options: Mapping[str, Any]
    keep_alive: int | None = None
    think: Think = None
    format: Format = None
    shift: bool | None = None
    truncate: bool = True
    top_logprobs: int | None = None
    """None: no probabilities at all; else how many alternatives beside each token's own."""
    tools: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    guard_repeats: bool = False
    """End the answer when the model says the same token over and over."""
    cut_prompt: bool = False
    """Where dropping messages is not enough, cut the prompt itself."""

    context: Sequence[int] = ()
    """Tokens of an earlier prompt with its answer, to go on from."""
    remember: bool = False
    """Tell such tokens at the end."""

    @property
    def switches(self) -> dict[str, Any]:
        """What the translators must know."""
        return {
            "mute": self.options["num_predict"] == 0,
            "guard_repeats": self.guard_repeats,
            "top_logprobs": self.top_logprobs,
        }
