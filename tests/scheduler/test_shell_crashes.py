"""Processes that end on their own, and faults that nobody thought of: one error for each lease, and life goes on."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from simulations.world import open_world
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.runners.contract import LoadFailedError, RunnerDiedError
from trio_ollama.scheduler import Limits, Policy, PredecessorStuckError


async def test_while_idle(autojump_clock: MockClock) -> None:
    """R79: noticed at once, not listed, its memory free without a wait, the next request served."""
    async with open_world() as world:
        world.factory.next("m", Behaviour(dies_idle=10.0))
        await world.client("m").ended.wait()
        await trio.sleep_until(12.001)
        assert world.scheduler.snapshot() == ()
        assert not world.scheduler.fleet.runners
        asked = trio.current_time()
        following = world.client("m")
        await following.granted.wait()
        assert trio.current_time() == asked + 2.0
        await world.quiesce()


async def test_in_the_middle_of_streams(autojump_clock: MockClock) -> None:
    """R80: each lease one error, the other runner untouched, the next request loads anew."""
    async with open_world(policy=Policy(num_parallel=2)) as world:
        other = world.client("other", tokens=2000)
        await other.streaming.wait()
        world.factory.next("m", Behaviour(dies_after_tokens=20))
        streams = [world.client("m", tokens=100) for _ in range(2)]
        await world.rest()
        waiting = world.client("m", tokens=100)  # for a slot
        for client in (*streams, waiting):
            await client.ended.wait()
        assert [type(client.error) for client in (*streams, waiting)] == [RunnerDiedError] * 3
        for client in streams:
            # The connection's own words: it may know more than the exit status.
            assert (
                str(client.error) == "an error was encountered while running the model: exit status 1: simulated fault"
            )
        following = world.client("m")
        await world.quiesce()
        assert (following.outcome, other.outcome) == (Outcome.ANSWERED, Outcome.ANSWERED)


async def test_a_signal_counts_as_an_end(autojump_clock: MockClock) -> None:
    """R80."""
    async with open_world() as world:
        client = world.client("m", tokens=10**6)
        await client.streaming.wait()
        world.process("m").kill()  # somebody else's
        await client.ended.wait()
        assert "SIGKILL" in str(client.error)
        await world.quiesce()


async def test_those_who_wait_for_another_configuration_go_on(autojump_clock: MockClock) -> None:
    """R80: the crash is a way to make room, too."""
    async with open_world() as world:
        running = world.client("m", tokens=10**6)
        await running.streaming.wait()
        other = world.client("m", num_ctx=2048)
        await world.rest()
        world.process("m").crash()
        await world.quiesce()
        assert (running.outcome, other.outcome) == (Outcome.FAILED, Outcome.ANSWERED)


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(spawn_raises=ValueError("spawn")),
        Behaviour(ready_raises=ValueError("ready")),
        Behaviour(serve_raises=ValueError("serve")),
    ],
    ids=["spawn", "ready", "serve"],
)
async def test_an_unexpected_fault_ends_one_runner_only(
    autojump_clock: MockClock, behaviour: Behaviour, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(policy=Policy(num_parallel=2)) as world:
        other = world.client("other", tokens=2000)
        await other.streaming.wait()
        world.factory.next("m", behaviour)
        with caplog.at_level(logging.CRITICAL):
            clients = [world.client("m") for _ in range(3)]
            for client in clients:
                await client.ended.wait()
        assert [type(client.error) for client in clients] == [LoadFailedError] * 3
        following = world.client("m")
        await world.quiesce()
        assert (following.outcome, other.outcome) == (Outcome.ANSWERED, Outcome.ANSWERED)


async def test_an_unexpected_fault_under_a_lease(autojump_clock: MockClock) -> None:
    """It gets an error at once, whatever becomes of the process."""
    async with open_world() as world:
        world.factory.next("m", Behaviour(serve_raises=ValueError("serve"), kill_time=3.0))
        scheduler = world.scheduler
        client = world.client("m", tokens=10**6)
        await trio.sleep(1.0)
        scheduler.step(
            lambda now: scheduler.fleet.loaded(1, context=1, total_bytes=0, gpu_bytes=0, report=None, now=now)
        )
        await client.granted.wait()
        await client.ended.wait()
        assert (client.outcome, type(client.error)) == (Outcome.FAILED, RunnerDiedError)
        assert client.ended_at == 2.0  # it did not wait for the process
        await world.quiesce()


async def test_a_process_that_cannot_be_watched_any_more_is_on_record(autojump_clock: MockClock) -> None:
    """Its bytes stay reserved, its key is refused; all else goes on, also a shutdown."""
    async with open_world(limits=Limits(stop_grace=2.0, kill_wait=5.0)) as world:
        world.factory.next("m", Behaviour(serve_raises=ValueError("serve"), reaping_raises=True, kill_time=None))
        client = world.client("m")
        await client.ended.wait()
        assert client.outcome is Outcome.FAILED
        assert [name for _, name in world.process("m").signals] == ["KILL"]
        refused, other = world.client("m"), world.client("other")
        await other.ended.wait()
        assert type(refused.error) is PredecessorStuckError
        assert other.outcome is Outcome.ANSWERED
        world.scheduler.close()
        await world.scheduler.drained()
        await world.scheduler.stop_all()
        assert [runner.stuck for runner in world.scheduler.fleet.runners.values()] == [True]
