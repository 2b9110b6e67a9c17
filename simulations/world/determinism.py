"""`trio.run` with an interleaving that a seed decides: the same seed gives the same steps in the same order.

trio keeps this switch private (it is there for Hypothesis). It is used here and nowhere else, and `self_test` notices
a trio in which it has gone or means something else.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, MutableSequence, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

import trio
import trio.abc

from .guard import Guard, WedgedError
from .loop import JumpingClock, NoIo

__all__ = ["Order", "UnsupportedTrioError", "run", "self_test"]

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

Order = Callable[[int], random.Random]

_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_OLDEST: Final = (0, 30)


class UnsupportedTrioError(RuntimeError):
    """This trio cannot be made deterministic the way it is done here."""


def _scheduling() -> Any:
    """trio's module with the switch and the random numbers that order each batch of runnable tasks."""
    from trio._core import _run as scheduling

    version = tuple(int(part) for part in trio.__version__.split(".")[:2])
    if version < _OLDEST or not hasattr(scheduling, _SWITCH) or not isinstance(scheduling._r, random.Random):
        raise UnsupportedTrioError(f"trio {trio.__version__} has no switch for deterministic scheduling that we know")
    return scheduling


def run(
    main: Callable[[*Arguments], Awaitable[Result]],
    *arguments: *Arguments,
    seed: int,
    order: Order | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
    at_rest: Callable[[], None] = lambda: None,
) -> Result:
    """Run `main` on a clock that jumps whenever all tasks are blocked, in the interleaving of `seed`.

    `at_rest` is called before each jump, when nothing will happen any more at an instant; it raises nothing.

    `order` makes, of a seed, what puts each batch of runnable tasks into order, with its `shuffle`; the last one runs
    first. Without one, batches are shuffled. Raises `WedgedError` where the run would not end.
    """
    scheduling = _scheduling()
    before = getattr(scheduling, _SWITCH), scheduling._r
    setattr(scheduling, _SWITCH, True)
    scheduling._r = _Shuffled(seed) if order is None else order(seed)
    try:
        clock = JumpingClock(at_rest)
        return trio.run(_guarded, main, arguments, clock, scheduling, clock=clock, instruments=instruments)
    finally:
        setattr(scheduling, _SWITCH, before[0])
        scheduling._r = before[1]


class _Shuffled(random.Random):
    """Most batches are of one task, which needs no order."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 1:
            super().shuffle(x)


async def _guarded(
    main: Callable[..., Awaitable[Result]], arguments: tuple[Any, ...], clock: JumpingClock, scheduling: Any
) -> Result:
    runner = scheduling.GLOBAL_RUN_CONTEXT.runner
    with trio.CancelScope() as whole:
        guard = Guard(runner, whole)
        clock.runner, clock.guard = runner, guard
        runner.io_manager = NoIo(runner, guard)
        return await main(*arguments)
    raise WedgedError(guard.reason)


def self_test() -> None:
    """Raises `UnsupportedTrioError` unless seeds repeat, and different seeds differ."""

    async def race() -> list[int]:
        order: list[int] = []

        async def runner(number: int) -> None:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
                order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(runner, number)
        return order

    traces = [[run(race, seed=seed) for seed in range(4)] for _ in range(2)]
    if traces[0] != traces[1]:
        raise UnsupportedTrioError(f"trio {trio.__version__} does not repeat an interleaving")
    if all(trace == traces[0][0] for trace in traces[0]):
        raise UnsupportedTrioError(f"trio {trio.__version__} has one interleaving for all seeds")
