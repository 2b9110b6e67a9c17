"""A slot is free when the child says so, or its runner is recycled; never on our own assumption."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from simulations.world import open_world
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.runners.contract import RunnerDiedError
from trio_ollama.scheduler import Limits, Policy


async def test_an_aborted_call_keeps_its_slot_until_it_is_settled(autojump_clock: MockClock) -> None:
    """R08."""
    async with open_world(usual=Behaviour(settle_time=3.0)) as world:
        aborted = world.client("m", tokens=100)
        await aborted.streaming.wait()
        following = world.client("m", tokens=1)
        await world.rest()
        left = trio.current_time()
        aborted.leave()
        await following.streaming.wait()
        assert left + 3.0 <= trio.current_time() < left + 3.1
        await world.quiesce()
        assert following.outcome is Outcome.ANSWERED
        assert len(world.factory.spawned) == 1
        assert world.process("m").most_at_once == 1


async def test_a_call_aborted_before_its_head_keeps_its_slot(autojump_clock: MockClock) -> None:
    """R08: the child is already busy with the prompt."""
    async with open_world(usual=Behaviour(prompt_time=5.0, settle_time=3.0)) as world:
        aborted = world.client("m")
        await aborted.granted.wait()
        following = world.client("m", tokens=1)
        await trio.sleep(1)
        aborted.leave()
        await world.quiesce()
        assert aborted.granted_at is not None
        assert following.granted_at == aborted.granted_at + 1 + 3.0
        assert world.process("m").most_at_once == 1


async def test_an_aborted_input_of_a_batch_keeps_its_slot(autojump_clock: MockClock) -> None:
    """R08, R10."""
    async with open_world(usual=Behaviour(prompt_time=1.0, settle_time=3.0)) as world:
        batch = world.client("m", slot=False, inputs=5, tokens=0)
        await batch.streaming.wait()
        following = world.client("m", tokens=1)
        await trio.sleep(0.5)
        batch.leave()
        await world.quiesce()
        assert batch.ended_at is not None
        assert following.granted_at == batch.ended_at + 3.0
        assert world.process("m").most_at_once == 1


async def test_an_aborted_question_without_a_slot_frees_none(autojump_clock: MockClock) -> None:
    """R08: it is settled late as well, but it had nothing to give back."""
    async with open_world(usual=Behaviour(prompt_time=5.0, settle_time=1.0)) as world:
        holder = world.client("m", holds=True, tokens=0)
        await holder.granted.wait()
        lease = await world.scheduler.acquire(world.demand("m", slot=False))
        with trio.move_on_after(1):
            await lease.ask("/tokenize", {"content": "w"})
        lease.release()
        waiting = world.client("m", tokens=1)
        await trio.sleep(5)
        assert not waiting.granted.is_set()
        await world.quiesce()


async def test_every_call_of_a_lease_has_to_be_settled(autojump_clock: MockClock) -> None:
    """R08: the first one was left early, the last one came to its end."""
    async with open_world(usual=Behaviour(settle_time=3.0)) as world:
        lease = await world.scheduler.acquire(world.demand("m"))
        async with lease.stream("/completion", {}) as call:
            await call.receive()
        left = trio.current_time()
        assert (await lease.ask("/tokenize", {"content": "w w"}))["tokens"] == [0, 1]
        lease.release()
        following = world.client("m", tokens=1)
        await following.ended.wait()
        assert following.granted_at == left + 3.0
        await world.quiesce()


async def test_a_call_that_is_never_settled_has_its_runner_recycled(autojump_clock: MockClock) -> None:
    """R08: after C; the other leases get an error and no hang, the next request gets a fresh runner."""
    limits = Limits(abort_confirm=10.0)
    async with open_world(policy=Policy(num_parallel=2), limits=limits) as world:
        world.factory.next("m", Behaviour(settle_time=None))
        aborted, other = world.client("m", tokens=100), world.client("m", tokens=10**6)
        await aborted.streaming.wait()
        aborted.leave()
        await aborted.ended.wait()
        waiting = world.client("m", num_ctx=2048)
        await other.ended.wait()
        assert other.ended_at is not None
        assert aborted.ended_at is not None
        assert 10.0 <= other.ended_at - aborted.ended_at < 10.1
        assert (other.outcome, type(other.error)) == (Outcome.FAILED, RunnerDiedError)
        assert "10 s" in str(other.error)
        fresh = world.client("m", num_ctx=2048)
        await fresh.ended.wait()
        assert (waiting.outcome, fresh.outcome) == (Outcome.ANSWERED, Outcome.ANSWERED)
        assert fresh.generation == 2
        await world.quiesce()


async def test_a_normal_end_is_no_abort(autojump_clock: MockClock) -> None:
    """R11: the slot is free at once, without a confirmation that would never come."""
    async with open_world(usual=Behaviour(settle_time=None)) as world:
        clients = [world.client("m", tokens=3) for _ in range(3)]
        await world.quiesce()
        assert [client.outcome for client in clients] == [Outcome.ANSWERED] * 3
        assert len(world.factory.spawned) == 1


async def test_release_is_idempotent(autojump_clock: MockClock) -> None:
    """I03, R11."""
    async with open_world() as world:
        one, two = [await world.scheduler.acquire(world.demand("m", slot=False)) for _ in range(2)]
        one.release()
        one.release()
        (runner,) = world.scheduler.fleet.runners.values()
        assert len(runner.leases) == 1
        two.release()
        assert not runner.leases


async def test_a_late_release_does_not_touch_the_next_generation(autojump_clock: MockClock) -> None:
    """R13: a release goes to the lease's own generation."""
    async with open_world() as world:
        old = await world.scheduler.acquire(world.demand("m"))
        world.process("m").crash()
        await trio.sleep(1)
        new = await world.scheduler.acquire(world.demand("m"))
        assert (old.generation, new.generation) == (1, 2)
        old.release()
        (runner,) = world.scheduler.fleet.runners.values()
        assert len(runner.leases) == 1
        assert runner.held_slots == 1
        new.release()
        await world.quiesce()


async def test_a_late_confirmation_does_not_touch_the_next_generation(autojump_clock: MockClock) -> None:
    """R14."""
    async with open_world(usual=Behaviour(settle_time=5.0)) as world:
        aborted = world.client("m", tokens=100)
        await aborted.streaming.wait()
        aborted.leave()
        await aborted.ended.wait()
        world.process("m").crash()
        await world.rest()
        holder = world.client("m", holds=True, tokens=0)
        await holder.granted.wait()
        await trio.sleep(20)
        (runner,) = world.scheduler.fleet.runners.values()
        assert runner.held_slots == 1
        await world.quiesce()


async def test_a_released_lease_is_of_no_use(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        lease = await world.scheduler.acquire(world.demand("m"))
        lease.release()
        with pytest.raises(RuntimeError, match="released"):
            async with lease.stream("/completion", {}):
                pass
        with pytest.raises(RuntimeError, match="released"):
            async with lease.slot():
                pass


async def test_a_lease_released_in_the_middle_of_its_call_keeps_the_slot_until_the_call_ends(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        lease = await world.scheduler.acquire(world.demand("m"))
        async with lease.stream("/completion", {"n_predict": 10}) as call:
            await call.receive()
            lease.release()
            following = world.client("m", tokens=1)
            await trio.sleep(1)
            assert not following.granted.is_set()
        await world.quiesce()
        assert world.process("m").most_at_once == 1


async def test_one_lease_has_one_slot(autojump_clock: MockClock) -> None:
    async with open_world(policy=Policy(num_parallel=2)) as world:
        lease = await world.scheduler.acquire(world.demand("m", slot=False))
        async with lease.slot():
            with pytest.raises(RuntimeError, match="one slot"):
                async with lease.slot():
                    pass
        (runner,) = world.scheduler.fleet.runners.values()
        assert runner.held_slots == 0
        lease.release()


async def test_a_lease_may_stop_waiting_for_a_slot_and_try_again(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        holder = world.client("m", holds=True, tokens=0)
        await holder.granted.wait()
        lease = await world.scheduler.acquire(world.demand("m", slot=False))
        with trio.move_on_after(1) as patience:
            async with lease.slot():
                pass
        assert patience.cancelled_caught
        (runner,) = world.scheduler.fleet.runners.values()
        assert not runner.slot_queue
        holder.finish()
        await holder.ended.wait()
        assert runner.held_slots == 0
        async with lease.slot():
            assert runner.held_slots == 1
        lease.release()
        await world.quiesce()


async def test_the_runner_dies_while_a_lease_waits_for_a_slot(autojump_clock: MockClock) -> None:
    """R80: it gets the error there, and no slot of nothing."""
    async with open_world() as world:
        holder = world.client("m", holds=True, tokens=0)
        await holder.granted.wait()
        lease = await world.scheduler.acquire(world.demand("m", slot=False))
        entered = False

        async def wait() -> None:
            nonlocal entered
            with pytest.raises(RunnerDiedError, match="simulated fault"):
                async with lease.slot():
                    entered = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await world.rest()
            world.process("m").crash()
        assert not entered
        assert isinstance(lease.lost, RunnerDiedError)
        lease.release()
        await world.quiesce()


async def test_slots_are_handed_out_in_order(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        clients = []
        for _ in range(5):
            clients.append(world.client("m", tokens=20))
            await world.rest()
        await world.quiesce()
        ends = [client.ended_at or 0.0 for client in clients]
        assert ends == sorted(ends)
        assert len(set(ends)) == 5
