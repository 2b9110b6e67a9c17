"""An order of random priorities: of those that can run the highest does, but for few changes and a bound on waiting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import trio

from simulations.explore.priorities import Priorities
from simulations.world import determinism


async def steps_of(tasks: int, steps: int) -> list[int]:
    """Which task ran, step by step; they start one after the other and never block."""
    ran: list[int] = []

    async def runner(number: int) -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
            ran.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(tasks):
            nursery.start_soon(runner, number)
    return ran


def switches(ran: list[int]) -> int:
    return sum(one != next_ for one, next_ in pairwise(ran))


def ordered(seed: int, order: Callable[[int], Priorities], tasks: int = 5, steps: int = 20) -> list[int]:
    return determinism.run(steps_of, tasks, steps, seed=seed, order=order)


def test_without_changes_the_highest_runs_until_it_ends() -> None:
    ran = ordered(1, partial(Priorities, changes=0))
    assert switches(ran) == 4
    assert sorted(ran) == [number for number in range(5) for _ in range(20)]


def test_each_change_is_one_preemption() -> None:
    counts = {switches(ordered(seed, partial(Priorities, changes=2, steps=80))) for seed in range(20)}
    assert counts <= {4, 5, 6}
    assert 6 in counts


def test_seeds_repeat_and_differ() -> None:
    assert ordered(3, Priorities) == ordered(3, Priorities)
    assert len({tuple(ordered(seed, Priorities)) for seed in range(10)}) > 5


def test_every_order_of_tasks_comes_first_sometime() -> None:
    firsts = {ordered(seed, Priorities, tasks=3)[0] for seed in range(30)}
    assert firsts == {0, 1, 2}


def test_nobody_waits_for_ever_for_one_that_never_blocks() -> None:
    """Else the clock, which moves when all are blocked, would stand still as well."""

    async def main() -> int:
        spins = 0
        done = trio.Event()

        async def spin() -> None:
            nonlocal spins
            while not done.is_set():
                await trio.lowlevel.checkpoint()
                spins += 1

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(spin)
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            done.set()
        return spins

    for seed in range(10):
        assert determinism.run(main, seed=seed, order=partial(Priorities, patience=10)) < 200


def test_an_event_at_the_same_instant_wakes_by_priority() -> None:
    """Sleepers of one instant run one after the other, each up to where it blocks."""

    async def main() -> list[str]:
        log: list[str] = []

        async def sleeper(name: str) -> None:
            await trio.sleep(1)
            for step in range(3):
                log.append(f"{name}{step}")
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(sleeper, name)
        return log

    log = determinism.run(main, seed=5, order=partial(Priorities, changes=0))
    assert [text[0] for text in log] == [name for name in dict.fromkeys(text[0] for text in log) for _ in range(3)]
