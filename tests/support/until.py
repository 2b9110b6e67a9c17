"""Waiting for what another process does, of which no event can tell us."""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["until"]

PAUSE = 0.01


async def until(condition: Callable[[], object], within: float, what: Callable[[], str]) -> None:
    """Look again and again until `condition` holds. Raises AssertionError with `what()` after `within` seconds."""
    with trio.move_on_after(within):
        await trio.lowlevel.checkpoint()
        while not condition():  # noqa: ASYNC110
            await trio.sleep(PAUSE)
        return
    raise AssertionError(f"not within {within:g} s: {what()}")
