"""One client cancelled at every one of its checkpoints, in the states that matter; nobody else may notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from simulations.explore.sweep import sweep
from simulations.world import GIB, World
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Client
from trio_ollama.scheduler import Policy

BIG = {"x": 16 * GIB, "b": 16 * GIB}
QUICK = Behaviour(load_time=1.0, prompt_time=0.01, token_time=0.01, settle_time=0.05)


async def alone(world: World) -> Client:
    """It loads, streams and goes."""
    return world.client("x", tokens=3)


async def sharing_a_load(world: World) -> Client:
    """It starts a load that others have joined, and is first in line for the slot."""
    await trio.sleep(1)
    victim = world.client("x", tokens=3)
    for _ in range(2):
        world.client("x", tokens=3, arrives=1.5)
    return victim


async def evicting(world: World) -> Client:
    """It needs the memory of a busy runner, and others want that runner."""
    world.client("x", tokens=20)
    await trio.sleep(1.05)
    victim = world.client("b", tokens=3)
    world.client("x", tokens=2, arrives=1.1)
    world.client("x", tokens=2, arrives=1.4)
    return victim


async def reloading(world: World) -> Client:
    """It needs other options, and others need them, too, or not."""
    world.client("x", tokens=20)
    await trio.sleep(1.05)
    victim = world.client("x", num_ctx=2048, tokens=3)
    world.client("x", num_ctx=2048, tokens=2, arrives=1.1)
    world.client("x", tokens=2, arrives=1.15)
    return victim


async def waiting_for_a_slot(world: World) -> Client:
    """It is second of three on one slot."""
    world.client("x", tokens=20)
    await trio.sleep(1.05)
    victim = world.client("x", tokens=3)
    world.client("x", tokens=3, arrives=1.1)
    return victim


async def embedding(world: World) -> Client:
    """It takes a slot for each of its inputs, between others."""
    world.client("x", tokens=5)
    await trio.sleep(1.0)
    victim = world.client("x", inputs=4, slot=False, tokens=0)
    world.client("x", tokens=3, arrives=1.02)
    return victim


async def at_the_end_of_keep_alive(world: World) -> Client:
    """Its runner expires while it is on its way."""
    world.client("x", tokens=0, keep_alive=1.0)
    return world.client("x", tokens=3, arrives=2.0, keep_alive=0.0)


async def waiting_for_figures(world: World) -> Client:
    """The machine is slow to answer, and another one waits as well."""
    await trio.sleep(10)
    world.hardware.query_time = 0.5
    victim = world.client("x", tokens=3)
    world.client("b", tokens=3)
    return victim


@pytest.mark.parametrize(
    "scenario",
    [
        alone,
        sharing_a_load,
        evicting,
        reloading,
        waiting_for_a_slot,
        embedding,
        at_the_end_of_keep_alive,
        waiting_for_figures,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_nobody_else_notices_and_nothing_is_left(scenario: Callable[[World], Awaitable[Client]]) -> None:
    """I01-I03, I05-I07, I10, I11, I14, I18, I24."""
    for slots in (1, 2):

        def make(slots: int = slots) -> dict[str, Any]:
            return {"sizes": BIG, "usual": QUICK, "policy": Policy(num_parallel=slots)}

        assert sweep(scenario, make=make, seed=slots) > 30


def test_a_lost_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep is not blind: a lease that stays behind when its request is cancelled in the step of the grant."""
    from trio_ollama.scheduler.core.fleet import Fleet

    leave = Fleet.leave
    monkeypatch.setattr(Fleet, "leave", lambda self, seq, now: leave(self, seq, now) if seq in self.waiters else None)
    with pytest.raises(AssertionError, match=r"seed 0, between, step \d+"):
        sweep(sharing_a_load, make=lambda: {"sizes": BIG, "usual": QUICK})
