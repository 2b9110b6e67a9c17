"""`trio.run` with an interleaving that a seed decides: the same seed gives the same steps in the same order.

trio's loop is replaced for that (`turns`), by private names; `self_test` notices a trio in which they have gone or mean
something else.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar, TypeVarTuple

import trio
import trio.abc
import trio.testing

from .guard import WedgedError
from .loop import JumpingClock
from .turns import Turns

__all__ = ["Order", "UnsupportedTrioError", "run", "run_on_trios_loop", "self_test"]

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

Order = Callable[[int], random.Random]

_SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
"""trio's own, for Hypothesis."""
_NAMES: Final = (_SWITCH, "unrolled_run", "GLOBAL_RUN_CONTEXT", "CancelShieldedCheckpoint")
_OLDEST: Final = (0, 30)


class UnsupportedTrioError(RuntimeError):
    """This trio cannot be made deterministic the way it is done here."""


def _scheduling() -> Any:
    """trio's module with its loop, and the random numbers that order each batch of runnable tasks."""
    from trio._core import _run as scheduling

    version = tuple(int(part) for part in trio.__version__.split(".")[:2])
    known = all(hasattr(scheduling, name) for name in _NAMES) and isinstance(scheduling._r, random.Random)
    if version < _OLDEST or not known:
        raise UnsupportedTrioError(f"trio {trio.__version__} has another loop than those that we know")
    return scheduling


def run(
    main: Callable[[*Arguments], Awaitable[Result]],
    *arguments: *Arguments,
    seed: int,
    order: Order | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
    at_rest: Callable[[float, float], None] = lambda now, then: None,
    after_step: Callable[[], None] | None = None,
) -> Result:
    """Run `main` on a clock that jumps whenever all tasks are blocked, in the interleaving of `seed`.

    `order` makes, of a seed, what puts each batch of runnable tasks into order, with its `shuffle`; the last one runs
    first. Without one, batches are shuffled. `at_rest`, `after_step`: see `Turns`. Raises `WedgedError` where the run
    would not end.
    """
    scheduling = _scheduling()
    random = _Shuffled(seed) if order is None else order(seed)
    clock = JumpingClock()
    turns = Turns(scheduling, random, clock, at_rest=at_rest, after_step=after_step)
    with _replaced(scheduling, unrolled_run=turns.run):
        return trio.run(_guarded, main, arguments, turns, clock=clock, instruments=instruments)


def run_on_trios_loop(main: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments, seed: int) -> Result:
    """As `run`, on trio's own loop and its clock for tests, which need more time for the same steps."""
    scheduling = _scheduling()
    clock = trio.testing.MockClock(autojump_threshold=0)
    with _replaced(scheduling, **{_SWITCH: True, "_r": _Shuffled(seed)}):
        return trio.run(main, *arguments, clock=clock)


@contextmanager
def _replaced(scheduling: Any, **those: object) -> Iterator[None]:
    before = {name: getattr(scheduling, name) for name in those}
    try:
        vars(scheduling).update(those)
        yield
    finally:
        vars(scheduling).update(before)


class _Shuffled(random.Random):
    """Most batches are of one task, which needs no order."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 1:
            super().shuffle(x)


async def _guarded(main: Callable[..., Awaitable[Result]], arguments: tuple[Any, ...], turns: Turns) -> Result:
    with turns.guard.whole:
        return await main(*arguments)
    raise WedgedError(turns.guard.reason)


def self_test() -> None:
    """Raises `UnsupportedTrioError` unless seeds repeat, different seeds differ, and our loop does what trio's does."""

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
    if traces[0] != [run_on_trios_loop(race, seed=seed) for seed in range(4)]:
        raise UnsupportedTrioError(f"the loop of trio {trio.__version__} takes other steps than ours")
    if all(trace == traces[0][0] for trace in traces[0]):
        raise UnsupportedTrioError(f"trio {trio.__version__} has one interleaving for all seeds")
