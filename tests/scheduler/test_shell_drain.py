"""A drain ends: what was there may finish, nobody new gets in, and a runner that no longer responds is ended."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from simulations.world import GIB, World, open_world
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Client, Outcome
from trio_ollama.runners.contract import RunnerDiedError
from trio_ollama.scheduler import ForcedStopError, Limits, Policy
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State

BIG = {"x": 16 * GIB, "b": 16 * GIB}


async def traffic(world: World, until: float, **changes: object) -> list[Client]:
    """A client that asks again as soon as it was answered; all that it asked."""
    asked = []
    while trio.current_time() < until:
        asked.append(world.client("x", tokens=50, **changes))
        await asked[-1].ended.wait()
    return asked


async def test_continuous_traffic_does_not_keep_a_runner_from_making_room(autojump_clock: MockClock) -> None:
    """R38, R39, I21, I23: eight clients hammer x; b waits for what ran when it came, and no longer."""
    asked: list[Client] = []

    async def hammer(world: World) -> None:
        asked.extend(await traffic(world, until=120.0, keep_alive=300.0))

    async with open_world(sizes=BIG, policy=Policy(num_parallel=2)) as world:
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(hammer, world)
            await trio.sleep(30)
            other = world.client("b", tokens=1)
            await other.ended.wait()
            assert other.outcome is Outcome.ANSWERED
            # Eight requests on two slots and N = 4 more, half a second each; the exit, a load.
            assert trio.current_time() < 30 + 12 * 0.6 / 2 + 1 + 2 + 1
        assert all(client.outcome is Outcome.ANSWERED for client in asked)
        await world.quiesce()


async def test_nor_from_being_loaded_with_other_options(autojump_clock: MockClock) -> None:
    """R39: both groups finish."""
    asked: list[Client] = []

    async def hammer(world: World) -> None:
        asked.extend(await traffic(world, until=60.0))

    async with open_world() as world:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(hammer, world)
            await trio.sleep(10)
            other = world.client("x", num_ctx=2048)
            await other.ended.wait()
            assert other.outcome is Outcome.ANSWERED
            assert trio.current_time() < 10 + 8 * 0.6 + 1 + 2 + 1
        assert all(client.outcome is Outcome.ANSWERED for client in asked)
        await world.quiesce()


async def test_running_out_of_memory_in_a_request_drains_everything(autojump_clock: MockClock) -> None:
    """R51: idle ones now, busy ones with their last request; nobody is cut off."""
    async with open_world() as world:
        await world.client("idle", keep_alive=3600.0).ended.wait()
        busy = world.client("busy", keep_alive=3600.0, holds=True)
        await busy.streaming.wait()
        lease = await world.scheduler.acquire(world.demand("failing", keep_alive=3600.0))
        lease.report_out_of_memory()
        lease.release()
        states = {runner.model.name: runner.state for runner in world.scheduler.fleet.runners.values()}
        assert states == {"idle": State.STOPPING, "busy": State.DRAINING, "failing": State.STOPPING}
        await trio.sleep(10)
        busy.finish()
        await busy.ended.wait()
        assert busy.outcome is Outcome.ANSWERED
        await trio.sleep(1)
        world.assert_empty()


async def test_a_drain_without_progress_is_ended(autojump_clock: MockClock) -> None:
    """R81: after D; an eviction never waits for ever, and the lease gets an error."""
    async with open_world(sizes=BIG, limits=Limits(drain_progress=300.0)) as world:
        world.factory.next("x", Behaviour(hangs=True))
        hung = world.client("x")
        await hung.granted.wait()
        asked = trio.current_time()
        world.scheduler.stop("x")
        other = world.client("b")
        await hung.ended.wait()
        assert trio.current_time() == asked + 300.0
        assert (hung.outcome, type(hung.error)) == (Outcome.FAILED, RunnerDiedError)
        await other.ended.wait()
        assert other.outcome is Outcome.ANSWERED
        await world.quiesce()


async def test_an_eviction_of_a_hung_runner_is_ended(autojump_clock: MockClock) -> None:
    """R81, I21: a claim that waits for a hung runner is a drain as well."""
    async with open_world(sizes=BIG, limits=Limits(drain_progress=300.0)) as world:
        world.factory.next("x", Behaviour(hangs=True))
        hung = world.client("x")
        await hung.granted.wait()
        asked = trio.current_time()
        other = world.client("b")
        await other.granted.wait()
        assert trio.current_time() < asked + 300.0 + 10.0
        assert hung.outcome is Outcome.FAILED
        await world.quiesce()


async def test_a_drain_with_progress_is_not(autojump_clock: MockClock) -> None:
    """R81: an answer may take longer than D, as long as something comes."""
    async with open_world(limits=Limits(drain_progress=10.0), usual=Behaviour(token_time=5.0)) as world:
        slow = world.client("x", tokens=30)
        await slow.streaming.wait()
        world.scheduler.stop("x")
        await world.quiesce()
        assert (slow.outcome, slow.got) == (Outcome.ANSWERED, 30)


async def test_progress_from_before_the_drain_starts_no_clock(autojump_clock: MockClock) -> None:
    """R81: D counts from the start of the drain, or from the last token in it."""
    async with open_world(limits=Limits(drain_progress=10.0), usual=Behaviour(prompt_time=50.0)) as world:
        slow = world.client("x", tokens=1)
        await slow.granted.wait()
        await trio.sleep(45.0)
        world.scheduler.stop("x")
        await world.quiesce()
        assert slow.outcome is Outcome.ANSWERED


async def test_a_request_that_was_busy_elsewhere_hears_of_it_when_it_comes_back(autojump_clock: MockClock) -> None:
    """I04: it wrote to its client while its runner was taken away, and does not wait for that one any more."""
    async with open_world(usual=Behaviour(kill_time=None, token_time=60.0)) as world:
        lease = await world.scheduler.acquire(world.demand("x"))
        async with lease.stream("/completion", {}) as call:
            await call.receive()
            world.scheduler.kill(1, Because.FORCED, "the model was stopped")
            await trio.sleep(1)
            now = trio.current_time()
            with pytest.raises(ForcedStopError, match="the model was stopped"):
                await call.receive()
            assert trio.current_time() == now
        lease.release()


async def test_every_call_of_a_lease_hears_that_its_runner_was_taken_away(autojump_clock: MockClock) -> None:
    """I04, R10: one that is being opened as well; the process lives on and answers nobody."""
    async with open_world(usual=Behaviour(kill_time=None, prompt_time=60.0, token_time=60.0)) as world:
        lease = await world.scheduler.acquire(world.demand("x"))

        async def read() -> None:
            async with lease.stream("/completion", {}) as call:
                while True:
                    await call.receive()

        async def lose() -> None:
            with pytest.raises(ForcedStopError, match="the model was stopped"):
                await read()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lose)
            await trio.sleep(90)
            nursery.start_soon(lose)
            nursery.start_soon(lose)
            await trio.sleep(1)
            world.scheduler.kill(1, Because.FORCED, "the model was stopped")
            now = trio.current_time()
        assert trio.current_time() == now
        lease.release()


async def test_a_forced_stop_gives_each_lease_an_error_at_once(autojump_clock: MockClock) -> None:
    """I04: also those that wait for a slot; the process is killed without grace."""
    async with open_world() as world:
        running, waiting = world.client("x", tokens=10**6), world.client("x", tokens=10**6)
        await trio.sleep(5)
        now = trio.current_time()
        world.scheduler.kill(1, Because.FORCED, "the model was stopped")
        await running.ended.wait()
        await waiting.ended.wait()
        assert trio.current_time() == now
        for client in (running, waiting):
            assert (type(client.error), str(client.error)) == (ForcedStopError, "the model was stopped")
        await world.rest()
        assert [name for _, name in world.process("x").signals] == ["KILL"]
        await world.quiesce()
