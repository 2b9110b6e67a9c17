"""The events an answer is made of: any number of tokens, then exactly one `Done` or `Failure`.

Dialects encode these and nothing else; they never see what the runner said.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

__all__ = ["Done", "Event", "Failure", "Token", "ToolCall"]


class Token(msgspec.Struct, gc=False):
    """A piece of text, of thinking, or both. `logprobs`: entries of `token`, `logprob`, `bytes`, `top_logprobs`."""

    text: str
    thinking: str = ""
    logprobs: list[dict[str, Any]] | None = None


class ToolCall(msgspec.Struct):
    """A function the model wants called; `arguments` keeps the model's key order."""

    id: str
    index: int
    name: str
    arguments: dict[str, Any]


class Done(msgspec.Struct):
    """The answer is whole. Counts are tokens, durations nanoseconds; `reason` is `stop` or `length`."""

    reason: str
    prompt_tokens: int = 0
    """Including the ones that were taken from the runner's cache."""
    cached_tokens: int = 0
    """Of the prompt, those that were."""
    prompt_ns: int = 0
    output_tokens: int = 0
    output_ns: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    total_ns: int = 0
    """Since the request arrived."""
    load_ns: int = 0
    """From the arrival until the runner was handed over: queueing and loading."""
    context: tuple[int, ...] = ()
    """Tokens of the prompt with the answer, if they were asked for."""


class Failure(msgspec.Struct):
    """The answer ends here, with an error. `status` and `retry` are those of `ApiError`, while nothing was sent."""

    status: int
    text: str
    retry: bool = True


Event: TypeAlias = Token | Done | Failure
