"""Checks that several native routes share."""

from __future__ import annotations

from trio_ollama.durations import parse_keep_alive
from trio_ollama.server.errors import ApiError

__all__ = ["check_top_logprobs", "keep_alive_of", "stops"]


def check_top_logprobs(wanted: int) -> None:
    """Raises `ApiError` 400 outside 0..20."""
    if not 0 <= wanted <= 20:
        raise ApiError(400, "top_logprobs must be between 0 and 20")


def keep_alive_of(value: object) -> int | None:
    """Nanoseconds, None if absent. Raises `ApiError` 400."""
    try:
        return parse_keep_alive(value)
    except ValueError as error:
        raise ApiError(400, str(error)) from None


def stops(keep_alive: int | None) -> bool:
    """True if a request without a prompt asks for the model to be unloaded: zero, and only when said (R25)."""
    return keep_alive == 0
