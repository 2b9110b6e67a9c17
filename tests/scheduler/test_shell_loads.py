"""Loads: shared, failing once for all, stalling, retried, and never in the way of those they do not concern."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from simulations.world import GIB, GPU, open_world
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from trio_ollama.runners.contract import LoadFailedError
from trio_ollama.scheduler import CrashBackoffError, Limits, Policy, QueueFullError

TWO_GPUS = {GPU: 24 * GIB, "GPU-1": 24 * GIB}
OUT_OF_MEMORY = Behaviour(dies_loading=0.5, exit_lines=("cudaMalloc failed: out of memory",))


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (Behaviour(spawn_error="no such binary"), "no such binary"),
        (Behaviour(dies_loading=0), "exit status 1: simulated fault"),
        (Behaviour(dies_loading=0.5), "exit status 1: simulated fault"),
        (Behaviour(refuses_to_load="this model may be incompatible"), "may be incompatible"),
        (Behaviour(refuses_to_load="no, and I stay", term_time=None), "no, and I stay"),
    ],
    ids=["spawn", "start", "halfway", "refuses", "refuses and ignores SIGTERM"],
)
async def test_a_failure_is_told_once_to_all_who_wait(
    autojump_clock: MockClock, behaviour: Behaviour, reason: str
) -> None:
    """R18: never listed, nothing kept, and the next request tries anew."""
    async with open_world() as world:
        world.factory.next("m", behaviour)
        clients = [world.client("m") for _ in range(5)]
        for client in clients:
            await client.ended.wait()
        assert [type(client.error) for client in clients] == [LoadFailedError] * 5
        (text,) = {str(client.error) for client in clients}
        assert reason in text
        assert world.scheduler.snapshot() == ()
        again = world.client("m")
        await world.quiesce()
        assert again.outcome is Outcome.ANSWERED


async def test_a_failure_tells_how_the_process_ended(autojump_clock: MockClock) -> None:
    """R78."""
    async with open_world() as world:
        world.factory.next("m", Behaviour(dies_loading=0, exit_code=134, exit_lines=("GGML_ASSERT(ok) failed",)))
        client = world.client("m")
        await client.ended.wait()
        assert client.ended_at == 0.0  # by its exit, not by a timeout
        assert "exit status 134" in str(client.error)
        assert "GGML_ASSERT(ok) failed" in str(client.error)


async def test_other_configurations_do_not_share_a_failure(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.factory.next("m", Behaviour(dies_loading=0.5))
        failed = world.client("m", num_ctx=2048)
        await world.rest()
        other = world.client("m", num_ctx=8192)
        await world.quiesce()
        assert failed.outcome is Outcome.FAILED
        assert other.outcome is Outcome.ANSWERED


async def test_a_load_that_stalls_is_given_up_after_its_last_sign_of_life(autojump_clock: MockClock) -> None:
    """R83; others flow meanwhile (R53)."""
    async with open_world(TWO_GPUS, limits=Limits(load_stall=300.0)) as world:
        await world.client("small", num_ctx=2048).ended.wait()
        world.factory.next("m", Behaviour(load_time=10.0, stalls_loading=0.5))
        started = trio.current_time()
        stalled = world.client("m")
        other = world.client("small", num_ctx=2048, arrives=started + 100)
        await stalled.ended.wait()
        assert trio.current_time() == started + 5.0 + 300.0
        assert str(stalled.error).startswith("timed out waiting for llama-server to start")
        assert other.granted_at == started + 100
        await world.quiesce()
        assert world.process("m").exited is not None


async def test_a_load_may_take_for_ever_if_it_is_told_so(autojump_clock: MockClock) -> None:
    """R83: no limit."""
    async with open_world(limits=Limits(load_stall=math.inf), usual=Behaviour(load_time=1e5)) as world:
        client = world.client("m")
        await world.quiesce()
        assert client.outcome is Outcome.ANSWERED


async def test_three_crashes_in_a_row_end_the_trying(autojump_clock: MockClock) -> None:
    """R78: fail fast with the last error for a while; then one more try."""
    policy = Policy(crash_limit=3, crash_backoff=30 * 10**9)
    async with open_world(policy=policy) as world:
        world.factory.next("m", *[Behaviour(dies_loading=0, exit_lines=("no good",))] * 3)
        for _ in range(3):
            failed = world.client("m")
            await failed.ended.wait()
            assert type(failed.error) is LoadFailedError
        refused = world.client("m")
        await refused.ended.wait()
        assert type(refused.error) is CrashBackoffError
        assert "no good" in str(refused.error)
        assert len(world.factory.spawned) == 3
        other = world.client("other")
        await trio.sleep(31)
        late = world.client("m")
        await world.quiesce()
        assert (other.outcome, late.outcome) == (Outcome.ANSWERED, Outcome.ANSWERED)


async def test_running_out_of_memory_beside_others_is_tried_once_more_alone(autojump_clock: MockClock) -> None:
    """R48."""
    async with open_world() as world:
        await world.client("other").ended.wait()
        world.factory.next("m", OUT_OF_MEMORY)
        client = world.client("m", num_ctx=4096)
        await client.ended.wait()
        assert client.outcome is Outcome.ANSWERED
        assert world.process("other").exited is not None
        await world.quiesce()


async def test_running_out_of_memory_twice_is_an_error(autojump_clock: MockClock) -> None:
    """R48: with the original error, and without a third try."""
    async with open_world() as world:
        await world.client("other").ended.wait()
        world.factory.next("m", OUT_OF_MEMORY, OUT_OF_MEMORY)
        client = world.client("m", num_ctx=4096)
        await client.ended.wait()
        assert type(client.error) is LoadFailedError
        assert client.error.out_of_memory
        assert len(world.factory.spawned) == 3
        await world.quiesce()


async def test_nobody_waits_any_more_for_a_load_to_be_retried(autojump_clock: MockClock) -> None:
    """R48, R50: the retry goes with its waiters, and whoever was claimed for it is open again."""
    async with open_world(policy=Policy(num_parallel=2)) as world:
        busy = world.client("other", holds=True)
        await busy.granted.wait()
        world.factory.next("m", OUT_OF_MEMORY)
        client = world.client("m", num_ctx=4096)
        await trio.sleep(3)
        client.leave()
        await client.ended.wait()
        late = world.client("other", tokens=1)
        await late.ended.wait()
        assert late.outcome is Outcome.ANSWERED
        await world.quiesce()
        assert len(world.factory.spawned) == 2


async def test_a_slow_load_stands_in_nobodys_way(autojump_clock: MockClock) -> None:
    """R53, R17: neither for the loaded nor for another device."""
    async with open_world(TWO_GPUS, sizes={"huge": 16 * GIB, "next": 16 * GIB}) as world:
        await world.client("loaded").ended.wait()
        world.factory.next("huge", Behaviour(load_time=1000.0))
        slow = world.client("huge")
        await trio.sleep(1)
        asked = trio.current_time()
        loaded, elsewhere = world.client("loaded"), world.client("next")
        await elsewhere.granted.wait()
        assert loaded.granted_at == asked
        assert elsewhere.granted_at == asked + 2.0
        assert not slow.granted.is_set()
        await world.quiesce()
        assert slow.outcome is Outcome.ANSWERED


async def test_a_slow_look_at_the_machine_stands_only_in_the_way_of_loads(autojump_clock: MockClock) -> None:
    """R17: at most 3 s, then the last good figures are used (R65)."""
    async with open_world() as world:
        await world.client("loaded").ended.wait()
        await trio.sleep(60)
        world.hardware.query_time = 30.0
        asked = trio.current_time()
        cold, loaded = world.client("cold"), world.client("loaded")
        await loaded.granted.wait()
        assert trio.current_time() == asked
        assert world.scheduler.snapshot()
        await cold.granted.wait()
        assert trio.current_time() == asked + 3.0 + 2.0
        await world.quiesce()


async def test_requests_that_wait_for_figures_keep_their_order(autojump_clock: MockClock) -> None:
    async with open_world(sizes={f"m{number}": 16 * GIB for number in range(5)}) as world:
        await trio.sleep(60)
        world.hardware.query_time = 2.0
        clients = []
        for number in range(5):
            clients.append(world.client(f"m{number}"))
            await trio.sleep(0.1)
        await world.quiesce()
        granted = [client.granted_at or 0.0 for client in clients]
        assert granted == sorted(granted)


@pytest.mark.parametrize("bound", [0, 1, 2, 10])
async def test_the_queue_is_bounded_over_all_stages(autojump_clock: MockClock, bound: int) -> None:
    """R23, R54: who finds too many waiting is refused at once, and a place that is left is free at once."""
    async with open_world(policy=Policy(queue_bound=bound)) as world:
        starter = world.client("m", holds=True, tokens=0)
        await world.rest()
        rest = [world.client("m", tokens=1) for _ in range(12)]
        await world.rest()
        refused = [client for client in rest if client.outcome is Outcome.FAILED]
        assert all(isinstance(client.error, QueueFullError) for client in refused)
        assert len(rest) - len(refused) == max(0, bound - 1)
        await starter.granted.wait()
        # Now they wait for its slot instead, and the starter counts no more.
        for _ in range(bound - max(0, bound - 1)):
            rest.append(world.client("m", tokens=1))
        await world.rest()
        one_too_many = world.client("m")
        await world.rest()
        assert isinstance(one_too_many.error, QueueFullError)
        waiting = [client for client in rest if client.outcome is None]
        assert len(waiting) == bound
        if waiting:
            waiting[0].leave()
            await waiting[0].ended.wait()
            into_its_place = world.client("m", tokens=1)
            await world.rest()
            assert into_its_place.outcome is None
        await world.quiesce()


async def test_a_burst_over_the_bound(autojump_clock: MockClock) -> None:
    async with open_world(policy=Policy(queue_bound=512)) as world:
        clients = [world.client("m", tokens=1) for _ in range(600)]
        await world.quiesce()
        outcomes = [client.outcome for client in clients]
        assert outcomes.count(Outcome.ANSWERED) == 512
        assert [type(client.error) for client in clients if client.error] == [QueueFullError] * 88
