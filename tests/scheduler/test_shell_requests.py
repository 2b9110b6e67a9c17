"""What the scheduler shows of its requests, and how one of them, or a whole model, is ended at once."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from simulations.world import GIB, World, open_world
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.scheduler import ForcedStopError, Policy, RequestView
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.stages import Stage

LARGE = {"x": 16 * GIB, "b": 16 * GIB}


def stages(world: World) -> list[tuple[int, str, int | None]]:
    return [(view.seq, view.stage.value, view.position) for view in world.scheduler.requests()]


def view_of(world: World, seq: int) -> RequestView:
    (found,) = [view for view in world.scheduler.requests() if view.seq == seq]
    return found


async def test_a_load_then_slots(autojump_clock: MockClock) -> None:
    """I20: from the load to the slot, each place in the queue is its own."""
    async with open_world(usual=Behaviour(load_time=10.0)) as world:
        for _ in range(3):
            world.client("x", tokens=1000)
        await world.rest()
        assert stages(world) == [(1, "waiting for load", 1), (2, "waiting for load", 2), (3, "waiting for load", 3)]
        first, second, _ = world.scheduler.requests()
        assert (first.because, second.because) == (Because.LOADING, Because.LOADING)
        assert first.by is None or not first.behind_a_request
        assert first.gen is None
        await trio.sleep(12)
        assert stages(world) == [(1, "running", None), (2, "waiting for slot", 1), (3, "waiting for slot", 2)]
        running, waiting, _ = world.scheduler.requests()
        assert (running.gen, running.because) == (1, None)
        assert 0 < running.since <= waiting.since + 1 < trio.current_time() * 1e9
        for client in world.clients:
            client.leave()
        await world.rest()
        assert stages(world) == []
        await world.quiesce()


async def test_whoever_must_make_room_and_how_much(autojump_clock: MockClock) -> None:
    """Why it waits, for which runner, for how many bytes on which device, and since when."""
    async with open_world(sizes=LARGE) as world:
        busy = world.client("x", tokens=10**6, keep_alive=300.0)
        await busy.streaming.wait()
        await trio.sleep(100)
        asked = trio.current_time()
        world.client("b", tokens=1)
        await trio.sleep(50)
        view = view_of(world, 2)
        assert (view.stage, view.position) == (Stage.WAITING_FOR_DRAIN, 1)
        assert (view.because, view.by, view.behind_a_request) == (Because.EVICTING_BUSY, 1, False)
        assert view.resource
        assert 0 < view.short <= 16 * GIB
        assert asked * 1e9 <= view.since < (asked + 1) * 1e9
        later = world.client("x", tokens=1)
        await world.rest()
        own = view_of(world, 3)
        assert (own.because, own.by, own.behind_a_request) == (Because.RUNNER_CLAIMED, 2, True)
        busy.leave()
        await later.ended.wait()
        await world.quiesce()


async def test_whoever_asked_is_handed_back(autojump_clock: MockClock) -> None:
    """Also before the scheduler has figures of the machine to look at."""
    asker = object()
    async with open_world() as world:
        await trio.sleep(100)  # the figures are old by then
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.scheduler.acquire, world.demand("x"), asker)
            while not (views := world.scheduler.requests()):  # noqa: ASYNC110 - the very first moment is meant
                await trio.lowlevel.checkpoint()
            (view,) = views
            assert view.asker is asker
            assert view.demand.model.name == "x"
            assert (view.seq, view.because) in ((0, Because.MEASURING), (1, Because.MEASURING), (1, Because.LOADING))
            nursery.cancel_scope.cancel()
        assert world.scheduler.requests() == ()
        await world.quiesce()


async def test_an_abandoned_lease_is_interrupted_and_nobody_else(autojump_clock: MockClock) -> None:
    """R09: its call ends at once, with the error given; a neighbour on the same runner does not notice."""
    async with open_world(policy=Policy(num_parallel=2), usual=Behaviour(settle_time=1.0)) as world:
        neighbour = world.client("x", tokens=400)
        lease = await world.scheduler.acquire(world.demand("x"))
        told: list[BaseException] = []

        async def listen() -> None:
            try:
                async with lease.stream("/completion", {"n_predict": 10**6}) as call:
                    while True:
                        await call.receive()
            except KeyError as error:
                told.append(error)
            lease.release()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await trio.sleep(3)
            now = trio.current_time()
            lease.abandon(KeyError("enough"))
            await world.rest()
            assert trio.current_time() == now
            assert [str(error) for error in told] == ["'enough'"]
        with pytest.raises(RuntimeError, match="released"):
            async with lease.stream("/completion", {}):
                pass
        await neighbour.ended.wait()
        assert neighbour.outcome is Outcome.ANSWERED
        assert world.process("x").signals == []
        await world.quiesce()


async def test_an_abandoned_lease_asks_for_nothing_more(autojump_clock: MockClock) -> None:
    """It was not waiting for the runner: the next call is not begun, and no slot is waited for."""
    async with open_world() as world:
        lease = await world.scheduler.acquire(world.demand("x", slot=False))
        lease.abandon(KeyError("enough"))
        lease.abandon(KeyError("later"))
        with pytest.raises(KeyError, match="enough"):
            await lease.ask("/tokenize", {})
        with pytest.raises(KeyError, match="enough"):
            async with lease.slot():
                pass
        lease.release()
        await world.quiesce()


async def test_a_forced_stop_of_a_model_says_what_was_there(autojump_clock: MockClock) -> None:
    """I04: each lease gets its error; the process is killed at once."""
    async with open_world() as world:
        running, waiting = world.client("x", tokens=10**6), world.client("x", tokens=10**6)
        other = world.client("o", tokens=10)
        await trio.sleep(5)
        now = trio.current_time()
        (view,) = world.scheduler.force_stop("x")
        assert (view.name, view.state, view.leases) == ("x", State.READY, 2)
        await running.ended.wait()
        await waiting.ended.wait()
        assert trio.current_time() == now
        assert {str(client.error) for client in (running, waiting)} == {"the model was stopped"}
        assert world.scheduler.force_stop("nobody") == ()
        await world.rest()
        assert [name for _, name in world.process("x").signals] == ["KILL"]
        await other.ended.wait()
        assert other.outcome is Outcome.ANSWERED
        await world.quiesce()


async def test_a_forced_stop_of_a_load(autojump_clock: MockClock) -> None:
    """R26: whoever waits for that load is told that it was stopped, not that it failed; a later request loads anew."""
    async with open_world(usual=Behaviour(load_time=20.0)) as world:
        first, second = world.client("x"), world.client("x")
        await trio.sleep(5)
        (view,) = world.scheduler.force_stop("x")
        assert view.state in (State.SPAWNING, State.LOADING)
        await first.ended.wait()
        await second.ended.wait()
        for client in (first, second):
            assert (type(client.error), str(client.error)) == (ForcedStopError, "the model was stopped")
        third = world.client("x", tokens=1)
        await third.ended.wait()
        assert third.outcome is Outcome.ANSWERED
        await world.quiesce()


async def test_a_forced_stop_in_the_grace_of_an_ordinary_one(autojump_clock: MockClock) -> None:
    async with open_world(usual=Behaviour(term_time=None)) as world:
        idle = world.client("x", tokens=1, keep_alive=0)
        await idle.ended.wait()
        await world.rest()
        (view,) = world.scheduler.force_stop("x")
        assert (view.state, view.leases) == (State.STOPPING, 0)
        now = trio.current_time()
        await world.rest()
        assert [name for _, name in world.process("x").signals] == ["TERM", "KILL"]
        assert trio.current_time() == now
        await world.quiesce()
