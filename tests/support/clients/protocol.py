"""What all programs have in common: how they are started, and how they tell that they have left a request."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the clients' own loop, in their own process
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Final

__all__ = ["A_MOMENT", "ENDLESS", "QUESTION", "SHORT", "TOOL", "leave_by_cancel", "leave_by_timeout", "left", "run"]

QUESTION: Final = "w1 w2 w3"
SHORT: Final = {"num_predict": 6, "temperature": 0.0}
ENDLESS: Final = {"num_predict": 30_000}
TOOL: Final = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "the sum",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
A_MOMENT: Final = 0.5
"""Seconds: an answer has begun by then, and is far from its end."""


def left(how: str) -> None:
    """Tell that the request is left, with this process alive and well; go on when the test has seen enough."""
    print(f"left by {how}", flush=True)
    sys.stdin.readline()


async def leave_by_cancel(how: str, pieces: Callable[[], Awaitable[AsyncIterable[Any]]]) -> None:
    """Begin a stream in a task, and cancel the task when a first piece has come."""
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in await pieces():
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await asyncio.to_thread(left, how)


async def leave_by_timeout(how: str, answer: Callable[[], Awaitable[Any]]) -> None:
    """Wait a moment for a whole answer, and no longer."""
    try:
        async with asyncio.timeout(A_MOMENT):
            await answer()
    except TimeoutError:
        await asyncio.to_thread(left, how)
    else:
        raise AssertionError("it was answered")


def run(do: Iterable[Callable[[str], None]], leave: Iterable[Callable[[str], None]]) -> None:
    """Call with the daemon's address what the command line asks for."""
    _, url, what = sys.argv
    for each in do if what == "do" else leave:
        each(url)
