"""What counts as an answer, and so ends a row of crashes (R78)."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from simulations.world import open_world
from simulations.world.behaviour import Behaviour
from trio_ollama.runners.contract import Call, RunnerDiedError
from trio_ollama.scheduler import CrashBackoffError, Policy

DIES = Behaviour(dies_after_tokens=5)
MODELS = [f"m{number}" for number in range(20)]
"""The end of the stream and the end of the process are seen in either order: with so many, in both."""


async def read_all(call: Call) -> None:
    while await call.receive():
        pass


@pytest.mark.parametrize("asks_before", [False, True], ids=["streams", "asks, then streams"])
async def test_an_answer_that_broke_off_is_none(asks_before: bool, autojump_clock: MockClock) -> None:
    """Whoever streams catches the error inside, to tell its client, and gives the lease back in good order."""
    async with open_world(policy=Policy(max_models=1)) as world:
        for model in MODELS:
            world.factory.next(model, DIES, DIES, DIES)
            for _ in range(3):
                lease = await world.scheduler.acquire(world.demand(model))
                if asks_before:
                    await lease.ask("/tokenize", {"content": "w"})
                async with lease.stream("/completion", {"prompt": "w", "n_predict": 100}) as call:
                    with pytest.raises(RunnerDiedError):
                        await read_all(call)
                lease.release()
                await world.rest()
            with pytest.raises(CrashBackoffError):
                await world.scheduler.acquire(world.demand(model))
        assert len(world.factory.spawned) == 3 * len(MODELS)


async def test_an_answer_ends_the_row(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.factory.next("m", DIES, DIES, Behaviour(dies_idle=1.0), DIES, DIES)
        for tokens in (100, 100, 3, 100, 100):
            client = world.client("m", tokens=tokens)
            await client.ended.wait()
            assert (client.error is None) == (tokens == 3)
            await world.rest()
        following = world.client("m", tokens=3)
        await following.ended.wait()
        assert following.error is None
