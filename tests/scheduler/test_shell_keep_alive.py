"""When an idle runner goes, and that a stop is a stop."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from simulations.world import EFFECTIVELY_FOR_EVER, World, open_world
from simulations.world.clients import Outcome
from trio_ollama.scheduler import FOREVER, Policy


def loaded(world: World) -> list[str]:
    return [view.name for view in world.scheduler.snapshot()]


async def test_it_ends_exactly_at_its_deadline(autojump_clock: MockClock) -> None:
    """I15, R29: counted from the end of the last request."""
    async with open_world() as world:
        client = world.client("m", keep_alive=8.0, tokens=1000)
        await client.ended.wait()
        assert client.ended_at is not None
        await trio.sleep_until(client.ended_at + 7.999)
        assert loaded(world) == ["m"]
        await trio.sleep_until(client.ended_at + 8.001)
        assert loaded(world) == []
        await world.quiesce()


async def test_zero_ends_it_with_its_request(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        client = world.client("m", keep_alive=0.0)
        await client.ended.wait()
        assert loaded(world) == []
        await trio.sleep(1)
        world.assert_empty()


async def test_a_millisecond_is_a_deadline_like_any_other(autojump_clock: MockClock) -> None:
    """R27."""
    async with open_world() as world:
        client = world.client("m", keep_alive=0.001)
        await client.ended.wait()
        assert loaded(world) == ["m"]
        await trio.sleep(0.002)
        assert loaded(world) == []
        await world.quiesce()


async def test_for_ever_has_no_timer(autojump_clock: MockClock) -> None:
    """R27, I24."""
    async with open_world(policy=Policy(keep_alive=FOREVER)) as world:
        await world.client("m").ended.wait()
        await trio.sleep(EFFECTIVELY_FOR_EVER)
        (view,) = world.scheduler.snapshot()
        assert view.expires_in == FOREVER
        assert world.scheduler.stop("m")
        await world.quiesce()


async def test_a_request_at_the_instant_of_the_timer_wins(autojump_clock: MockClock) -> None:
    """R21: whatever order the loop wakes them in."""
    for _ in range(20):
        async with open_world() as world:
            client = world.client("m", keep_alive=5.0)
            await client.ended.wait()
            deadline = world.scheduler.fleet.runners[1].deadline
            assert deadline is not None
            late = world.client("m", arrives=deadline / 1e9, keep_alive=300.0)
            await late.ended.wait()
            assert late.generation == 1
            await trio.sleep(299)
            assert loaded(world) == ["m"]
            await world.quiesce()


async def test_a_timer_of_an_earlier_idle_period_does_nothing(autojump_clock: MockClock) -> None:
    """R21."""
    async with open_world() as world:
        await world.client("m", keep_alive=5.0).ended.wait()
        await trio.sleep(4.5)
        await world.client("m", tokens=100).ended.wait()  # beyond the first deadline
        await trio.sleep(4.5)
        assert loaded(world) == ["m"]
        await trio.sleep(1.0)
        assert loaded(world) == []
        await world.quiesce()


@pytest.mark.parametrize(
    ("first", "second", "lives_for"),
    [(0.0, None, 0.0), (600.0, None, 600.0), (600.0, 5.0, 5.0), (5.0, 600.0, 600.0)],
)
async def test_the_last_granted_value_counts(
    autojump_clock: MockClock, first: float, second: float | None, lives_for: float
) -> None:
    """R24."""
    async with open_world(policy=Policy(num_parallel=2)) as world:
        one = world.client("m", keep_alive=first, holds=True)
        await one.granted.wait()
        two = world.client("m", keep_alive=second)
        await two.ended.wait()
        one.finish()
        await one.ended.wait()
        await trio.sleep(max(0.0, lives_for - 0.01))
        assert loaded(world) == (["m"] if lives_for else [])
        await trio.sleep(0.02)
        assert loaded(world) == []
        await world.quiesce()


async def test_a_busy_runner_needs_no_steps_of_the_scheduler(autojump_clock: MockClock) -> None:
    """R22: nothing polls while a request runs beyond the keep-alive."""
    async with open_world() as world:
        client = world.client("m", keep_alive=0.001, holds=True, tokens=0)
        await client.granted.wait()
        await trio.sleep(1)
        events = len(world.events)
        tasks = trio.lowlevel.current_statistics().tasks_living
        await trio.sleep(80000)
        assert len(world.events) == events
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        await world.quiesce()


async def test_a_stop_while_busy_is_not_undone(autojump_clock: MockClock) -> None:
    """R25: who comes later waits for a fresh runner; the running request ends in peace; two stops are one."""
    async with open_world() as world:
        running = world.client("m", holds=True)
        await running.streaming.wait()
        assert world.scheduler.stop("m")
        world.scheduler.stop("m")
        late = world.client("m", keep_alive=600.0)
        await trio.sleep(5)
        assert not late.granted.is_set()
        (view,) = world.scheduler.snapshot()
        assert view.draining
        assert view.expires_in < 0
        running.finish()
        await late.ended.wait()
        assert (running.outcome, late.outcome) == (Outcome.ANSWERED, Outcome.ANSWERED)
        assert (running.generation, late.generation) == (1, 2)
        await world.quiesce()


async def test_a_stop_of_nothing(autojump_clock: MockClock) -> None:
    """R25."""
    async with open_world() as world:
        assert not world.scheduler.stop("m")
        assert not world.factory.spawned


async def test_a_stop_while_loading_serves_those_who_wait(autojump_clock: MockClock) -> None:
    """R26: and then it drains; later requests get a fresh runner."""
    async with open_world() as world:
        waiting = [world.client("m", tokens=1) for _ in range(3)]
        await trio.sleep(1)
        assert world.scheduler.stop("m")
        late = world.client("m", tokens=1)
        await world.quiesce()
        assert [client.generation for client in waiting] == [1, 1, 1]
        assert late.generation == 2


async def test_a_stop_while_loading_with_nobody_left(autojump_clock: MockClock) -> None:
    """R26."""
    async with open_world(policy=Policy(finish_abandoned_load=True)) as world:
        client = world.client("m", leaves=0.5)
        await client.ended.wait()
        await trio.sleep_until(1.0)
        assert world.scheduler.stop("m")
        await trio.sleep(0.5)
        world.assert_empty()


async def test_expiry_and_stop_of_an_idle_runner_in_one_instant(autojump_clock: MockClock) -> None:
    """R14: one end, whoever asked for it."""
    async with open_world() as world:
        client = world.client("m", keep_alive=5.0)
        await client.ended.wait()
        await trio.sleep(5.0)
        world.scheduler.stop("m")
        await trio.sleep(1)
        world.assert_empty()
        assert [name for _, name in world.process("m").signals] == ["TERM"]


async def test_many_timers_in_one_instant(autojump_clock: MockClock) -> None:
    async with open_world({}, ram=1 << 50, policy=Policy(max_models=200)) as world:
        holders = [world.client(f"m{number}", keep_alive=60.0, holds=True, tokens=0) for number in range(100)]
        for client in holders:
            await client.granted.wait()
        for client in holders:
            client.finish()
        await trio.sleep(59.9)
        assert len(loaded(world)) == 100
        await trio.sleep(0.2)
        assert loaded(world) == []
        await world.quiesce()
