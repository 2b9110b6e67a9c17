"""Figures for people: rows of a name and a value, and lengths of simulated time."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["long_time", "rows"]


def rows(figures: Sequence[tuple[str, str]], indent: int = 2, name_width: int = 22) -> list[str]:
    """A line for each figure, values to the right."""
    width = max((len(value) for _, value in figures), default=0)
    return [f"{'':{indent}}{name:<{name_width}}{value:>{width}}" for name, value in figures]


def long_time(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours} h {rest // 60:02} min {rest % 60:02} s"
