"""The end of the scheduler, at whatever moment: nothing is left, and nobody waits for an answer that will not come."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from simulations.world import GIB, determinism, open_world
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from tests.support.steps import StepTrigger
from trio_ollama.runners.contract import RunnerError
from trio_ollama.scheduler import (
    ForcedStopError,
    Limits,
    Policy,
    PredecessorStuckError,
    SchedulingError,
    ShuttingDownError,
)

BIG = {"big": 16 * GIB, "large": 16 * GIB}


async def test_closing_refuses_those_who_wait_and_lets_the_others_end(autojump_clock: MockClock) -> None:
    """I25."""
    async with open_world(sizes=BIG) as world:
        running = world.client("big", tokens=1000)
        await running.streaming.wait()
        waiting = [world.client("large"), world.client("big", num_ctx=2048)]
        await world.rest()
        world.scheduler.close()
        world.scheduler.close()
        new = world.client("big")
        await world.rest()
        for client in (*waiting, new):
            assert type(client.error) is ShuttingDownError
        assert running.outcome is None
        await world.scheduler.drained()
        await running.ended.wait()
        assert running.outcome is Outcome.ANSWERED
        asked = trio.current_time()
        await world.scheduler.stop_all()
        assert trio.current_time() < asked + 1
        assert not world.factory.alive


async def test_closing_ends_loads(autojump_clock: MockClock) -> None:
    """R67: one error for whoever waits, and the process goes."""
    async with open_world() as world:
        client = world.client("m")
        await trio.sleep(1)
        world.scheduler.close()
        await client.ended.wait()
        assert type(client.error) is ShuttingDownError
        await trio.sleep(1)
        world.assert_empty()


async def test_closing_answers_those_who_wait_for_figures(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await trio.sleep(60)
        world.hardware.query_time = 2.0
        client = world.client("m")
        await trio.sleep(1)
        now = trio.current_time()
        world.scheduler.close()
        await client.ended.wait()
        assert trio.current_time() == now
        assert type(client.error) is ShuttingDownError


async def test_stopping_all_gives_running_requests_an_error(autojump_clock: MockClock) -> None:
    """I25: after the drain deadline."""
    async with open_world() as world:
        running = world.client("m", tokens=10**6)
        await running.streaming.wait()
        world.scheduler.close()
        await world.scheduler.stop_all()
        await running.ended.wait()
        assert (type(running.error), str(running.error)) == (ForcedStopError, "server is shutting down")
        assert not world.factory.alive


async def test_stopping_all_is_bounded(autojump_clock: MockClock) -> None:
    """I25, R71: even with a process that cannot be killed."""
    async with open_world(limits=Limits(stop_grace=2.0, kill_wait=5.0)) as world:
        world.factory.next("m", Behaviour(term_time=None, kill_time=None))
        await world.client("m").ended.wait()
        world.scheduler.close()
        asked = trio.current_time()
        await world.scheduler.stop_all()
        assert trio.current_time() == asked + 7.0


async def test_stopping_all_while_everything_is_under_way(autojump_clock: MockClock) -> None:
    async with open_world(policy=Policy(max_models=2)) as world:
        for number in range(4):
            world.client(f"m{number}", tokens=10**6 if number % 2 else 5)
        await trio.sleep(3)
        world.scheduler.close()
        await world.scheduler.stop_all()
        for client in world.clients:
            await client.ended.wait()
        await trio.sleep(10)
        world.assert_empty()


async def test_a_runner_that_ignores_sigterm_is_killed_after_g(autojump_clock: MockClock) -> None:
    """R71."""
    async with open_world(limits=Limits(stop_grace=2.0, kill_wait=5.0)) as world:
        world.factory.next("m", Behaviour(term_time=None))
        await world.client("m").ended.wait()
        asked = trio.current_time()
        world.scheduler.stop("m")
        following = world.client("m")
        await following.ended.wait()
        assert world.factory.spawned[0].signals == [(asked, "TERM"), (asked + 2.0, "KILL")]
        assert following.outcome is Outcome.ANSWERED
        await world.quiesce()


async def test_a_runner_that_cannot_be_killed_is_stuck_after_g_and_k(autojump_clock: MockClock) -> None:
    """R71: its key is refused, its bytes stay reserved, others are served; and it may still end one day."""
    async with open_world(limits=Limits(stop_grace=2.0, kill_wait=5.0)) as world:
        world.factory.next("m", Behaviour(term_time=None, kill_time=None))
        await world.client("m").ended.wait()
        asked = trio.current_time()
        world.scheduler.stop("m")
        waiting = world.client("m")
        await waiting.ended.wait()
        assert trio.current_time() == asked + 7.0
        later = world.client("m")
        await later.ended.wait()
        for client in (waiting, later):
            assert type(client.error) is PredecessorStuckError
            assert client.error.status == 503
            assert str(client.error) == 'model "m" is unavailable: its previous runner (pid 1000) has not exited'
        other = world.client("other")
        await other.ended.wait()
        assert other.outcome is Outcome.ANSWERED
        (stuck,) = [runner for runner in world.scheduler.fleet.runners.values() if runner.stuck]
        assert stuck.reservation["GPU-0"] == 4 * GIB
        assert world.scheduler.snapshot()[0].name == "other"
        world.process("m").let_go(Behaviour())
        await trio.sleep(10)
        again = world.client("m")
        await world.quiesce()
        assert again.outcome is Outcome.ANSWERED


async def test_a_hung_runner_that_cannot_be_killed_does_not_hold_its_requests(autojump_clock: MockClock) -> None:
    """R81: they get their error when the scheduler gives up, not when the process does."""
    async with open_world(limits=Limits(drain_progress=60.0)) as world:
        world.factory.next("m", Behaviour(hangs=True, term_time=None, kill_time=None))
        client = world.client("m")
        await client.granted.wait()
        asked = trio.current_time()
        world.scheduler.stop("m")
        await client.ended.wait()
        assert trio.current_time() == asked + 60.0
        assert isinstance(client.error, RunnerError)


async def test_the_end_with_a_process_that_cannot_be_killed(autojump_clock: MockClock) -> None:
    """I25: bounded; the request is told."""
    async with open_world() as world:
        world.factory.next("m", Behaviour(hangs=True, term_time=None, kill_time=None))
        client = world.client("m")
        await client.granted.wait()
        waiting = world.client("m", num_ctx=2048)
        await world.rest()
        asked = trio.current_time()
        world.stop()
        await client.ended.wait()
        await waiting.ended.wait()
        assert trio.current_time() <= asked + 5.0
        assert client.outcome is waiting.outcome is Outcome.FAILED


@pytest.mark.parametrize("seed", range(4))
def test_at_every_step_of_an_abort_that_is_never_confirmed(seed: int) -> None:
    """R08, R71: the request leaves while its runner, which cannot be killed, is given up."""

    async def scenario(trigger: StepTrigger) -> None:
        async with open_world(usual=Behaviour(kill_time=None, settle_time=None, token_time=2.0)) as world:
            client = world.client("m", tokens=10**6)
            await client.streaming.wait()
            trigger.arm(client.leave)
            world.stop()
            await trio.sleep(6.0)
            client.leave()
            await client.ended.wait()
            assert client.error is None or isinstance(client.error, RunnerError)
            assert not world.scheduler._tickets

    fired, steps = True, 0
    while fired:
        steps += 1
        trigger = StepTrigger(steps)
        determinism.run(scenario, trigger, seed=seed, instruments=[trigger])
        assert trigger.fault is None
        fired = trigger.fired
    assert steps > 10


@pytest.mark.parametrize(("how", "seed"), [("close and stop", 0), ("cancel", 0), ("cancel", 1)])
def test_at_every_step_of_loads_evictions_and_stops(how: str, seed: int) -> None:
    """R67, R68: nothing is spawned after it, every process is reaped, every request has one answer."""

    async def scenario(trigger: StepTrigger) -> None:
        async with open_world(sizes=BIG, usual=Behaviour(load_time=1.0)) as world:
            spawned = -1

            def end() -> None:
                nonlocal spawned
                spawned = len(world.factory.spawned)
                if how == "cancel":
                    world.stop()
                else:
                    world.scheduler.close()

            trigger.arm(end)
            first = world.client("big", tokens=2)
            await trio.sleep(0.5)
            for model in ("large", "big", "large", "small"):
                world.client(model, tokens=2)
            await trio.sleep_until(6.0)
            if trigger.fired:
                await world.scheduler.drained()
                await world.scheduler.stop_all()
                for client in world.clients:
                    await client.ended.wait()
                    assert client.outcome is not None
                    assert client.error is None or isinstance(client.error, SchedulingError | RunnerError)
                    if client.error is not None and not client.granted.is_set():
                        assert type(client.error) is ShuttingDownError
                await trio.sleep(10)
                world.assert_empty()
                assert len(world.factory.spawned) == spawned
            assert first.outcome is not None

    steps = 0
    while True:
        steps += 1
        trigger = StepTrigger(steps)
        determinism.run(scenario, trigger, seed=seed, instruments=[trigger])
        assert trigger.fault is None
        if not trigger.fired:
            break
    assert steps > 50
