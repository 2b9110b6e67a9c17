"""What several routes of OpenAI's have in common: sampling, stop strings, effort, formats of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.modes import Think

__all__ = ["StreamOptions", "sampling_options", "stops", "think_of"]

EFFORTS: Final[Mapping[str, Think]] = {
    "none": False,
    "minimal": "low",
    **{effort: effort for effort in ("low", "medium", "high", "max")},
    "xhigh": "max",
    "ultra": "max",
}


class StreamOptions(msgspec.Struct):
    """Whether the stream ends with the numbers of tokens."""

    include_usage: bool = False


def sampling_options(
    max_tokens: int | None, temperature: float | None, top_p: float | None, **more: Any
) -> dict[str, Any]:
    """Our options for OpenAI's names; `more` have the same ones. The two defaults of 1.0 come before the model's own
    values, as upstream does."""
    options = {
        "num_predict": max_tokens,
        "temperature": 1.0 if temperature is None else temperature,
        "top_p": 1.0 if top_p is None else top_p,
        **more,
    }
    return {name: value for name, value in options.items() if value is not None}


def stops(stop: str | list[str] | None) -> list[str] | None:
    """Stop strings: one, many or none."""
    return [stop] if isinstance(stop, str) else stop


def think_of(effort: str) -> Think:
    """Our `think` for an effort; empty: the model's own way. Raises `ApiError` 400."""
    if not effort:
        return None
    try:
        return EFFORTS[effort]
    except KeyError:
        choices = '"minimal", "low", "medium", "high", "xhigh", "ultra", "max", or "none"'
        raise ApiError(400, f'invalid reasoning value: "{effort}" (must be {choices})') from None
