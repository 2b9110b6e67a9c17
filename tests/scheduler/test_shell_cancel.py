"""A request that is cancelled, at whatever moment, holds nothing one step later, and nobody else notices."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from simulations.world import GIB, World, open_world
from simulations.world.clients import Client, Outcome
from trio_ollama.scheduler import Policy
from trio_ollama.scheduler.core.lifecycle import State

BIG = {"big": 16 * GIB, "large": 16 * GIB}
"""Two models of which one fits into the machine."""


def states(world: World) -> list[State]:
    return [runner.state for runner in world.scheduler.fleet.runners.values()]


async def ready(world: World, model: str = "m", **changes: object) -> Client:
    """A client that has got its lease and keeps it."""
    client = world.client(model, holds=True, tokens=0, **changes)
    await client.granted.wait()
    return client


async def test_while_queued_behind_a_load(autojump_clock: MockClock) -> None:
    """R01: it leaves at once, not when the load ends and the queue moves."""
    async with open_world() as world:
        first = world.client("m")
        await world.rest()
        queued = world.client("other", leaves=1.0)
        await queued.ended.wait()
        assert queued.outcome is Outcome.CANCELLED
        assert queued.ended_at == 1.0
        assert len(world.scheduler.fleet.waiters) == 1
        assert len(world.scheduler._tickets) == 1
        await world.quiesce()
        assert first.outcome is Outcome.ANSWERED
        assert len(world.factory.spawned) == 1  # nothing is started for the dead


async def test_while_fresh_figures_are_fetched(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await trio.sleep(60)
        world.hardware.query_time = 2.0
        gone, stays = world.client("m", leaves=61.0), world.client("m")
        await gone.ended.wait()
        assert (gone.outcome, gone.ended_at) == (Outcome.CANCELLED, 61.0)
        await world.quiesce()
        assert stays.outcome is Outcome.ANSWERED


async def test_while_it_waits_for_an_eviction(autojump_clock: MockClock) -> None:
    """R02: its claim goes with it, so that the busy runner is open again and nothing is started."""
    async with open_world(sizes=BIG, policy=Policy(num_parallel=2)) as world:
        user = await ready(world, "big")
        evictor = world.client("large")
        await world.rest()
        late = world.client("big")
        await world.rest()
        assert not late.granted.is_set()  # the runner is claimed
        evictor.leave()
        await world.rest()
        assert late.granted.is_set()
        assert user.lease is not None
        assert states(world) == [State.READY]
        await world.quiesce()
        assert len(world.factory.spawned) == 1


async def test_while_its_victim_stops(autojump_clock: MockClock) -> None:
    """R02: what is stopping already goes on; nothing is started for the dead."""
    async with open_world(sizes=BIG) as world:
        world.client("big")
        await trio.sleep(10)
        evictor = world.client("large")
        await world.rest()
        assert states(world) == [State.STOPPING]
        evictor.leave()
        await world.quiesce()
        assert len(world.factory.spawned) == 1


async def test_as_the_only_one_who_waits_for_a_load(autojump_clock: MockClock) -> None:
    """R03: the process is ended and reaped, and whoever is next is served."""
    async with open_world(sizes=BIG) as world:
        only = world.client("big", leaves=1.0)
        await world.rest()
        following = world.client("large")
        await only.ended.wait()
        await world.rest()
        assert [name for _, name in world.process("big").signals] == ["TERM"]
        await following.ended.wait()
        assert following.outcome is Outcome.ANSWERED
        assert following.granted_at is not None
        assert following.granted_at < 1.0 + 2.0 + 1.0  # a load, and a moment for the end of the first
        assert world.process("big").exited is not None
        await world.quiesce()


async def test_a_retry_before_the_kill_joins_the_load(autojump_clock: MockClock) -> None:
    """R03."""
    async with open_world() as world:
        first, retry = world.client("m", leaves=1.0), world.client("m", arrives=1.0)
        await world.quiesce()
        assert first.outcome is Outcome.CANCELLED
        assert retry.outcome is Outcome.ANSWERED


async def test_an_abandoned_load_may_be_finished(autojump_clock: MockClock) -> None:
    """R03: the other choice a user has."""
    async with open_world(policy=Policy(finish_abandoned_load=True)) as world:
        world.client("m", leaves=1.0)
        await trio.sleep(3)
        assert states(world) == [State.READY]
        await world.quiesce()


async def test_as_the_one_who_started_a_load_that_others_share(autojump_clock: MockClock) -> None:
    """R04: the load is nobody's own; the others get it."""
    async with open_world(policy=Policy(num_parallel=4)) as world:
        starter = world.client("m", leaves=1.8)
        others = [world.client("m", arrives=0.5) for _ in range(3)]
        await world.quiesce()
        assert starter.outcome is Outcome.CANCELLED
        assert [client.granted_at for client in others] == [2.0] * 3
        assert len(world.factory.spawned) == 1


async def test_half_of_a_herd(autojump_clock: MockClock) -> None:
    """R19: one spawn; those who stay all get it, those who left hold nothing."""
    async with open_world() as world:
        herd = [world.client("m", leaves=1.0 if number % 2 else math.inf, tokens=1) for number in range(100)]
        await trio.sleep(1.5)
        assert len(world.scheduler.fleet.waiters) == 50
        assert len(world.scheduler._tickets) == 50
        await world.quiesce()
        assert [client.outcome for client in herd] == [Outcome.ANSWERED, Outcome.CANCELLED] * 50
        assert len(world.factory.spawned) == 1


@pytest.mark.parametrize("order", ["grant, cancel", "cancel, grant"])
async def test_in_the_step_of_the_grant(autojump_clock: MockClock, order: str) -> None:
    """R05: the lease goes back, keep-alive starts, in both orders."""
    async with open_world() as world:
        client = world.client("m", holds=True)
        fleet, gen = world.scheduler.fleet, 1
        await world.rest()

        def load() -> None:
            world.scheduler.step(
                lambda now: fleet.loaded(gen, context=4096, total_bytes=0, gpu_bytes=0, report=None, now=now)
            )

        await trio.sleep(1)
        if order == "grant, cancel":
            load()
            assert fleet.runners[gen].leases
            client.leave()
        else:
            client.leave()
            load()
        await client.ended.wait()
        assert client.outcome is Outcome.CANCELLED
        assert not fleet.runners[gen].leases
        assert fleet.runners[gen].held_slots == 0
        assert fleet.runners[gen].deadline is not None
        assert not world.scheduler._tickets


async def test_between_the_grant_and_the_first_use(autojump_clock: MockClock) -> None:
    """R05: a lease that is handed over has exactly one owner."""
    async with open_world() as world:
        (await ready(world)).finish()
        await world.rest()
        with trio.CancelScope() as scope:
            scope.cancel()
            await world.scheduler.acquire(world.demand("m"))
        assert scope.cancelled_caught
        assert not world.scheduler._tickets
        with trio.CancelScope() as scope:
            lease = await world.scheduler.acquire(world.demand("m"))
            scope.cancel()
            lease.release()
        await world.quiesce()


async def test_while_it_waits_for_a_slot(autojump_clock: MockClock) -> None:
    """R07: it leaves the line at once, the runner never hears of it, and the others keep their order."""
    async with open_world() as world:
        await ready(world)
        first = world.client("m", tokens=1)
        await world.rest()
        left = world.client("m", leaves=5.0)
        await world.rest()
        last = world.client("m", tokens=1)
        await left.ended.wait()
        (runner,) = world.scheduler.fleet.runners.values()
        assert left.outcome is Outcome.CANCELLED
        assert (len(runner.leases), len(runner.slot_queue)) == (3, 2)
        await world.quiesce()
        assert first.ended_at is not None
        assert last.granted_at == first.ended_at
        assert world.process("m").most_at_once == 1


async def test_in_a_stream_hits_one_call_only(autojump_clock: MockClock) -> None:
    """R09."""
    async with open_world(policy=Policy(num_parallel=2)) as world:
        kept, aborted = world.client("m", tokens=100), world.client("m", tokens=100)
        await aborted.streaming.wait()
        aborted.leave()
        await world.quiesce()
        assert (kept.outcome, kept.got) == (Outcome.ANSWERED, 100)
        assert aborted.outcome is Outcome.CANCELLED


async def test_fifty_who_leave_in_the_middle_of_their_streams(autojump_clock: MockClock) -> None:
    """R06: no slot is lost."""
    async with open_world() as world:
        for _ in range(50):
            client = world.client("m", tokens=1000)
            await client.streaming.wait()
            client.leave()
            await client.ended.wait()
        started = trio.current_time()
        last = world.client("m", tokens=1)
        await last.ended.wait()
        assert last.outcome is Outcome.ANSWERED
        assert trio.current_time() - started < 0.1
        await world.quiesce()


async def test_a_whole_batch_of_embeddings(autojump_clock: MockClock) -> None:
    """R10: one lease, a slot for each input, other requests in between, and all of it ends together."""
    async with open_world() as world:
        batch = world.client("m", slot=False, inputs=1000, tokens=0)
        await batch.streaming.wait()
        asked = trio.current_time()
        other = world.client("m", tokens=1)
        await other.ended.wait()
        assert other.ended_at is not None
        assert other.ended_at - asked < 0.2  # an input of the batch, and itself
        assert 0 < batch.got < 1000
        batch.leave()
        await batch.ended.wait()
        await world.rest()
        (runner,) = world.scheduler.fleet.runners.values()
        assert (len(runner.leases), runner.held_slots) == (0, 0)
        await world.quiesce()
        assert world.process("m").most_at_once == 1
