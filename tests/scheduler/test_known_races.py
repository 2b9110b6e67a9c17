"""Races of schedulers with locks, channels and pings, which the shape of this one leaves no room for."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from trio.testing import MockClock

import trio_ollama.scheduler
from simulations.world import open_world
from simulations.world.behaviour import Behaviour
from tests.support.fleet_builder import GIB, FleetBuilder, S
from trio_ollama.scheduler import Policy
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.values import RAM, DeviceFacts

PACKAGE = Path(trio_ollama.scheduler.__file__).parent


@pytest.mark.parametrize("order", list(permutations(range(2))))
@pytest.mark.parametrize("end", ["expires", "crashes"])
def test_R12_a_runner_that_ends_in_the_same_instant_is_not_handed_out(order: tuple[int, ...], end: str) -> None:
    """I02: check and grant are one step, so whatever comes first, the lease is on a runner that lives."""
    fleet = FleetBuilder(24)
    x = fleet.runner("X", 4, keep=5 * S)
    fleet.now += 5 * S

    def ends() -> None:
        if end == "expires":
            fleet.fleet.expire(x.gen, fleet.now)
        else:
            fleet.fleet.exited(x.gen, "it died", now=fleet.now)

    def arrives() -> None:
        fleet.arrives(1, "X", 4)

    for step in order:
        (ends, arrives)[step]()
    leased = x.state is State.READY and 1 in x.leases
    lost = end == "crashes" and order == (1, 0)  # it had the lease, and was told
    waits = 1 in fleet.fleet.waiters
    assert [leased, lost, waits].count(True) == 1
    assert not (x.leases and x.state is not State.READY)


def test_R16_there_are_no_locks() -> None:
    """Nothing that could be taken in two orders, or held over a wait.

    Nobody waits by sleeping, either, save where something outside cannot tell: a driver that has not answered yet
    (R65), memory that comes back (R31); and there is the bound after SIGKILL.
    """
    banned = {"Lock", "StrictFIFOLock", "Semaphore", "Condition", "CapacityLimiter", "threading", "sleep_until"}
    pauses = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            assert name not in banned, f"{path.name}: {name}"
            if name == "sleep":
                pauses.append(path.name)
    assert sorted(pauses) == ["facts.py", "recovery.py", "supervisor.py"]


def test_R16_an_unload_and_a_placement_in_one_step_end_alike_in_both_orders() -> None:
    outcomes = []
    for first_unload in (True, False):
        fleet = FleetBuilder(24)
        x = fleet.runner("X", 14, leases=1)
        steps: list[Callable[[], object]] = [lambda f=fleet: f.releases(-1), lambda f=fleet: f.arrives(1, "B", 16)]
        for step in steps if first_unload else reversed(steps):
            step()
        fleet.exits(x)
        outcomes.append([(runner.key, runner.state) for runner in fleet.fleet.runners.values()])
    assert outcomes == [[("B", State.SPAWNING)]] * 2


def test_R40_the_end_of_another_runner_is_not_taken_for_that_of_the_victim() -> None:
    """I12: a waiter looks at what is there, not at how many have gone."""
    fleet = FleetBuilder(24)
    x, y = fleet.runner("X", 4), fleet.runner("Y", 14, leases=1)
    fleet.arrives(1, "B", 15)
    assert fleet.fleet.waiters[1].claim == {y.gen}
    fleet.fleet.exited(x.gen, "it died", now=fleet.now)
    fleet.recovers(x)
    assert 1 in fleet.fleet.waiters
    assert not [runner for runner in fleet.fleet.runners.values() if runner.key == "B"]
    fleet.releases(-1)
    fleet.exits(y)
    assert fleet.of("B").state is State.SPAWNING


def test_R41_the_last_victim_may_be_gone_when_its_turn_comes() -> None:
    fleet = FleetBuilder(24)
    x = fleet.runner("X", 14, leases=1)
    fleet.arrives(1, "B", 16)
    fleet.exits(x)  # a crash, before anybody stopped it
    assert fleet.of("B").state is State.SPAWNING
    passes = len(fleet.fleet.passes)
    fleet.looks()
    assert len(fleet.fleet.passes) - passes <= 2, "no busy loop"


def test_R47_the_automatic_limit_follows_the_devices() -> None:
    ram = DeviceFacts(RAM, 64 * GIB, 64 * GIB, library="cpu")
    gpus = [DeviceFacts(f"g{number}", 24 * GIB, 24 * GIB) for number in range(2)]
    fleet = FleetBuilder({})
    assert fleet.fleet.model_limit == 3, "discovery found no GPU at first"
    fleet.fleet.report([*gpus, ram], 0, 0)
    assert fleet.fleet.model_limit == 6
    fleet.fleet.report([gpus[0], ram], 0, 0)
    assert fleet.fleet.model_limit == 3


async def test_R60_a_busy_runner_that_says_nothing_for_long_is_still_good(autojump_clock: MockClock) -> None:
    """No ping decides about a runner: it is drained for other options only, and watched by its process's end."""
    silent = Behaviour(prompt_time=60.0)
    async with open_world(policy=Policy(num_parallel=2)) as world:
        world.factory.next("m", silent)
        first = world.client("m", tokens=1)
        second = world.client("m", arrives=30.0, tokens=1)
        await first.ended.wait()
        await second.ended.wait()
        assert second.granted_at == pytest.approx(30.0)
        assert len(world.factory.spawned) == 1
        assert not [event for event in world.scheduler.recent() if getattr(event, "because", None) is Because.HUNG]
