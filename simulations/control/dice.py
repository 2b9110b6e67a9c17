"""Chance in a modelled server: it follows from the interleaving, so that a schedule decides all of it."""

from __future__ import annotations

import random
from typing import Final

import trio

__all__ = ["DICE", "preempt", "roll"]

DICE: Final[trio.lowlevel.RunVar[random.Random]] = trio.lowlevel.RunVar("dice")

_TASKS: Final = 6
"""Whose order of running is the seed."""
_PAUSES: Final = (1, 1, 1, 1, 2, 2, 3, 4, 6, 9)
"""How often others may run before a goroutine goes on: mostly once, and now and then it is left behind."""


async def roll() -> None:
    """Set the dice for this run."""
    order: list[int] = []

    async def throw(number: int) -> None:
        await trio.lowlevel.checkpoint()
        order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(_TASKS):
            nursery.start_soon(throw, number)
    DICE.set(random.Random(repr(order)))


async def preempt() -> None:
    """Goroutines run in parallel, and the system takes the processor from whomever it likes."""
    for _ in range(DICE.get().choice(_PAUSES)):
        await trio.lowlevel.checkpoint()
