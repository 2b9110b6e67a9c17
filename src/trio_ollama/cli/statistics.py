"""The counts and times of an answer."""

from __future__ import annotations

from trio_ollama.cli.client import Json
from trio_ollama.cli.format import columns, duration

__all__ = ["statistics"]

SECOND = 1_000_000_000


def statistics(final: Json) -> str:
    """Those of the last object of a stream, one line each; what is zero is left out."""
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
