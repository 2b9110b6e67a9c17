"""Memory that comes back late holds up only the loads that need it, and a look that fails says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio
from trio.testing import MockClock

from simulations.world import GIB, GPU, World, open_world, running
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from simulations.world.hardware import SimulatedHardware
from trio_ollama.scheduler import Limits, Policy
from trio_ollama.scheduler.core.events import LoadStarted, RunnerGone
from trio_ollama.scheduler.core.values import RAM, DeviceFacts
from trio_ollama.scheduler.recovery import Sighting, came_back, recover, sighting

TWO_GPUS = {GPU: 24 * GIB, "GPU-1": 24 * GIB}
BIG = {"big": 16 * GIB, "large": 16 * GIB, "wide": 16 * GIB}


def figures(free: int | None, id_: str = GPU, **changes: Any) -> list[DeviceFacts]:
    gpus = [] if free is None else [DeviceFacts(id_, 100, free, **changes)]
    return [*gpus, DeviceFacts(RAM, 100, 100)]


async def how_long(
    free: Sequence[int | None], *, held: int = 8, stopped: int | None = 10, started: int = 90, **changes: Any
) -> tuple[float, int]:
    """Seconds and looks until the memory counts as back; `free` is what each look finds, the last one for ever."""
    looks = 0

    async def query() -> list[DeviceFacts]:
        nonlocal looks
        looks += 1
        return figures(free[min(looks, len(free)) - 1], **changes)

    begun = trio.current_time()
    before = None if stopped is None else {GPU: stopped}
    await recover({GPU: held}, before, {GPU: started}, query, limit=5.0, poll=0.25)
    return trio.current_time() - begun, looks


def test_what_counts_as_back() -> None:
    """R31, R32, G16: more than 75 %, in saturating ints."""
    assert not came_back(16, held=8, stopped=10, started=90)
    assert came_back(17, held=8, stopped=10, started=90)
    assert not came_back(0, held=8, stopped=10, started=90)  # a figure that falls is no recovery
    assert came_back(88, held=8, stopped=90, started=90)  # nothing was ever missing: an aborted load
    assert not came_back(87, held=8, stopped=90, started=90)
    assert came_back(0, held=0, stopped=10, started=90)
    assert came_back(1 << 63, held=1 << 62, stopped=0, started=0)


async def test_back_at_the_first_look(autojump_clock: MockClock) -> None:
    assert await how_long([18]) == (0.0, 1)


async def test_back_after_some_looks(autojump_clock: MockClock) -> None:
    assert await how_long([10, 10, 10, 10, 18]) == (1.0, 5)


async def test_the_wait_is_bounded_and_ends_once(autojump_clock: MockClock) -> None:
    """R33."""
    seconds, looks = await how_long([10])
    assert seconds == 5.0
    assert looks == 20


async def test_foreign_programs_take_memory_meanwhile(autojump_clock: MockClock) -> None:
    """R32: the difference does not wrap; R36: they can only make it longer."""
    assert (await how_long([3]))[0] == 5.0


async def test_less_comes_back_than_was_predicted(autojump_clock: MockClock) -> None:
    """R34: two equal looks after half a second."""
    assert (await how_long([12]))[0] == 0.5


async def test_a_driver_that_has_not_noticed_yet_is_waited_for(autojump_clock: MockClock) -> None:
    """R35: equal looks that show nothing of it are no news."""
    assert (await how_long([10] * 13 + [18]))[0] == 3.25


async def test_nothing_to_wait_for(autojump_clock: MockClock) -> None:
    """R34: dead before anybody looked; holding nothing; a device that shares RAM, or is gone."""
    assert await how_long([10], stopped=None) == (0.0, 0)
    assert await how_long([10], held=0) == (0.0, 1)
    assert await how_long([10], integrated=True) == (0.0, 1)
    assert await how_long([None]) == (0.0, 1)


PID = 7
SEEN = Sighting(held=8, unexplained=2)
Pids = dict[int, int | None]
Listed = Mapping[int, int | None] | None


async def how_long_with_a_list(
    looks: Sequence[tuple[int, Listed]], *, seen: Sighting | None = SEEN, held: int = 8, started: int = 90
) -> float:
    """Seconds until the memory counts as back; each look finds free bytes of 100 and who holds what, the last for ever.

    10 bytes were free when the process was stopped.
    """
    number = -1

    async def query() -> list[DeviceFacts]:
        nonlocal number
        number = min(number + 1, len(looks) - 1)
        return figures(looks[number][0])

    async def processes(id_: str) -> Listed:
        assert id_ == GPU
        return looks[number][1]

    begun = trio.current_time()
    await recover(
        {GPU: held},
        {GPU: 10},
        {GPU: started},
        query,
        limit=5.0,
        poll=0.25,
        pid=PID,
        seen={} if seen is None else {GPU: seen},
        processes=processes,
    )
    return trio.current_time() - begun


async def test_a_process_that_is_still_listed_holds_its_memory(autojump_clock: MockClock) -> None:
    """R31: what others give back meanwhile is not the runner's."""
    assert await how_long_with_a_list([(90, {PID: 8})] * 4 + [(98, {})]) == 1.0
    assert await how_long_with_a_list([(90, {PID: 8})]) == 5.0


async def test_others_take_what_came_back(autojump_clock: MockClock) -> None:
    """R32: free memory alone would never show it; the list explains where it went."""
    others: Pids = {8: 80}
    assert await how_long_with_a_list([(10, {**others, PID: 8}), (18, others)]) == 0.25
    taken: Pids = {8: 88}
    assert await how_long_with_a_list([(10, {**others, PID: 8}), (10, taken)]) == 0.25
    assert await how_long_with_a_list([(10, taken)], seen=None) == 5.0  # without evidence


async def test_a_list_that_is_quicker_than_the_figures(autojump_clock: MockClock) -> None:
    """R35: the process is gone from the list, but the bytes that it held are nobody's yet."""
    others: Pids = {8: 80}
    assert await how_long_with_a_list([(10, others)] * 3 + [(18, others)]) == 0.75


async def test_less_was_held_than_was_predicted(autojump_clock: MockClock) -> None:
    """R34: without waiting for two equal looks."""
    others: Pids = {8: 80}
    assert await how_long_with_a_list([(18, others)], held=60) == 0.0


async def test_a_list_without_figures_still_says_who_is_there(autojump_clock: MockClock) -> None:
    unsaid = Sighting(held=None, unexplained=None)
    assert await how_long_with_a_list([(90, {PID: None})] * 2 + [(90, {})], seen=unsaid) == 0.5
    assert await how_long_with_a_list([(10, {}), (11, {9: None}), (17, {})], seen=unsaid) == 0.5


async def test_without_a_list_free_memory_has_to_tell(autojump_clock: MockClock) -> None:
    assert await how_long_with_a_list([(10, None), (18, None)]) == 0.25
    assert await how_long_with_a_list([(10, {PID: 8}), (18, {PID: 8})], seen=None) == 0.25


def test_a_process_that_is_not_listed_while_it_lives_proves_nothing_later() -> None:
    (device, _) = figures(10)
    assert sighting(PID, None, device) is None
    assert sighting(PID, {8: 80}, device) is None  # the driver's pids are of another namespace, say
    assert sighting(PID, {PID: 8, 8: 80}, device) == Sighting(8, 2)
    assert sighting(PID, {PID: 8, 8: None}, device) == Sighting(8, None)
    assert sighting(PID, {PID: None}, device) == Sighting(None, None)


async def test_the_drivers_list_of_processes_ends_a_wait(autojump_clock: MockClock) -> None:
    """R32: a foreign program takes at once what the runner gives back."""
    for tells, how in ((False, "memory not seen back within 5 s"), (True, "memory back after 0.02 s")):
        async with open_world() as world:
            world.hardware.tells_processes = tells
            await world.client("m").ended.wait()
            await trio.sleep(10)
            world.hardware.query_time = 0.01
            held, runner = world.hardware.used(GPU), world.process("m")
            world.scheduler.stop("m")
            await runner.gone.wait()
            foreign = 999
            world.hardware.take(GPU, held, foreign)
            await trio.sleep(10)
            assert [event.how for event in world.events if isinstance(event, RunnerGone)] == [how]
            world.hardware.take(GPU, -held, foreign)
            await world.quiesce()


async def test_what_others_did_since_the_load_is_no_sign_of_memory_that_comes_back(autojump_clock: MockClock) -> None:
    """R31, R35: what a stop compares with is from just before it, not from the load."""
    foreign = 999
    for before, since in ((12 * GIB, -12 * GIB), (0, 12 * GIB)):
        async with open_world() as world:
            world.hardware.take(GPU, before, foreign)
            await world.client("m").ended.wait()
            await trio.sleep(10)
            world.hardware.take(GPU, since, foreign)
            world.hardware.lag(1.0)
            await trio.sleep(1)
            world.scheduler.stop("m")
            await trio.sleep(10)
            (how,) = (event.how for event in world.events if isinstance(event, RunnerGone))
            assert how in {"memory back after 1.00 s", "memory back after 1.25 s"}
            world.hardware.take(GPU, -(before + since), foreign)
            await world.quiesce()


async def test_a_lost_gpu_gets_no_more_models_and_its_runner_is_judged_by_its_process(
    autojump_clock: MockClock,
) -> None:
    """R65."""
    async with open_world(TWO_GPUS, sizes=BIG) as world:
        await world.client("big").ended.wait()
        (runner,) = world.scheduler.fleet.runners.values()
        (gpu,) = runner.placement.gpus
        await trio.sleep(60)
        world.hardware.lost.add(gpu)
        await world.client("large").ended.wait()
        assert [device.id for device in world.scheduler.devices()] == [
            *(id_ for id_ in TWO_GPUS if id_ != gpu),
            RAM,
        ]
        assert {report.id: report.trouble for report in world.scheduler.machine().gpus or ()}[gpu] == "lost"
        placed = {runner.model.name: runner.placement.gpus for runner in world.scheduler.fleet.runners.values()}
        assert placed["big"] == (gpu,)  # its process lives
        assert gpu not in placed["large"]
        begun = trio.current_time()
        world.process("big").crash()
        await trio.sleep(0.1)
        assert "big" not in {runner.model.name for runner in world.scheduler.fleet.runners.values()}
        assert trio.current_time() == begun + 0.1
        await world.quiesce()


async def test_one_bad_answer_about_a_gpu_moves_no_model(autojump_clock: MockClock) -> None:
    """R65: it is looked at again for a second, before the load goes elsewhere."""
    async with open_world({GPU: 24 * GIB}, sizes=BIG) as world:
        await world.client("small").ended.wait()
        await trio.sleep(60)
        world.hardware.lost.add(GPU)
        client = world.client("big")
        await trio.sleep(0.6)
        world.hardware.lost.clear()
        await client.ended.wait()
        placed = {runner.model.name: runner.placement.gpus for runner in world.scheduler.fleet.runners.values()}
        assert placed["big"] == (GPU,)
        await world.quiesce()


async def test_only_loads_that_need_the_device_wait_for_it(autojump_clock: MockClock) -> None:
    """R35, R36: releases and grants are as quick as ever."""
    async with open_world(TWO_GPUS, sizes=BIG, policy=Policy(num_parallel=1)) as world:
        await world.client("big").ended.wait()
        await world.client("small").ended.wait()  # on the other one
        world.hardware.lag(3.0)
        await trio.sleep(10)
        stopped = trio.current_time()
        world.scheduler.stop("big")
        await trio.sleep(0.1)
        elsewhere = world.client("large")
        again = world.client("wide")
        loaded = world.client("small")
        await loaded.ended.wait()
        assert loaded.granted_at == stopped + 0.1
        await elsewhere.granted.wait()
        await again.granted.wait()
        granted = sorted(at or 0.0 for at in (elsewhere.granted_at, again.granted_at))
        assert granted[0] < stopped + 0.1 + 2.1  # the other device was free
        assert granted[1] >= stopped + 3.0 + 2.0  # this one not before its driver said so
        assert {runner.placement.kind for runner in world.scheduler.fleet.runners.values()} == {"single"}
        await world.quiesce()


async def test_the_first_of_two_is_compared_with_what_the_second_has_left(autojump_clock: MockClock) -> None:
    """R31: with the last look before the load of the second one, its memory would never seem to come back."""
    async with open_world() as world:
        for model in ("first", "second"):
            await world.client(model).ended.wait()
        await trio.sleep(10)
        world.scheduler.stop("first")
        await trio.sleep(1)
        assert [event.how for event in world.events if isinstance(event, RunnerGone)] == ["memory back after 0.00 s"]
        await world.quiesce()


async def test_memory_that_never_comes_back_holds_a_load_up_for_v(autojump_clock: MockClock) -> None:
    """R33, R35: then the load starts with what there is."""
    async with open_world(sizes=BIG, limits=Limits(recovery=5.0)) as world:
        await world.client("big").ended.wait()
        await trio.sleep(10)
        world.hardware.take(GPU, 8 * GIB)  # a foreign program
        asked = trio.current_time()
        world.hardware.lag(1000.0)
        other = world.client("large")
        await other.granted.wait()
        assert trio.current_time() < asked + 5.0 + 2.0 + 1.0
        world.hardware.take(GPU, -8 * GIB)
        await world.quiesce()


async def test_a_runner_that_crashed_holds_nobody_up(autojump_clock: MockClock) -> None:
    """R34: one look shows that its memory is back."""
    async with open_world(sizes=BIG) as world:
        await world.client("big").ended.wait()
        await trio.sleep(10)
        world.process("big").crash()
        await world.rest()
        assert [event.how for event in world.events if isinstance(event, RunnerGone)] == ["memory back after 0.00 s"]


async def test_a_late_driver_is_waited_for_after_a_crash_as_well(autojump_clock: MockClock) -> None:
    """R35: the next model would be put on the GPU in part, for all its life."""
    async with open_world(sizes=BIG) as world:
        await world.client("big").ended.wait()
        world.hardware.lag(3.0)
        await trio.sleep(10)
        world.process("big").crash()
        await world.client("large").ended.wait()
        assert [event.how for event in world.events if isinstance(event, RunnerGone)] == ["memory back after 3.00 s"]
        assert [event.kind for event in world.events if isinstance(event, LoadStarted)] == ["single", "single"]


async def test_models_on_the_cpu_hold_nobody_up(autojump_clock: MockClock) -> None:
    async with open_world({}) as world:
        client = world.client("m", keep_alive=0.0)
        await client.ended.wait()
        await trio.sleep(0.1)
        world.assert_empty()


async def test_a_failed_look_is_no_news(autojump_clock: MockClock) -> None:
    """I19, R65: the last good figures are used; nothing moves to the CPU."""
    async with open_world() as world:
        await world.client("m").ended.wait()
        await trio.sleep(60)
        world.hardware.failing = True
        await world.client("other").ended.wait()
        world.hardware.failing, world.hardware.error = False, OSError("driver")
        await world.client("third").ended.wait()
        placements = [runner.placement for runner in world.scheduler.fleet.runners.values()]
        assert [placement.gpus for placement in placements] == [(GPU,)] * 3
        await world.quiesce()


async def test_a_first_look_that_fails_is_repeated(autojump_clock: MockClock) -> None:
    """R65: nothing is loaded on the CPU because the driver was not ready at the start."""
    world = World(SimulatedHardware({GPU: 24 * GIB}))
    world.hardware.failing = True
    async with running(world):
        client = world.client("m")
        await trio.sleep(1)
        world.hardware.failing = False
        await client.ended.wait()
        assert world.process("m").spec.visible_devices == (GPU,)
        await world.quiesce()


async def test_an_exit_during_a_look_makes_it_worthless(autojump_clock: MockClock) -> None:
    """R35: a load starts only on figures from after the last exit."""
    async with open_world(sizes=BIG) as world:
        await world.client("big").ended.wait()
        await trio.sleep(60)
        world.hardware.query_time = 1.0
        asked = trio.current_time()
        other = world.client("large")
        await trio.sleep(0.5)
        world.process("big").crash()
        await other.granted.wait()
        assert trio.current_time() >= asked + 0.5 + 1.0 + 2.0
        (runner,) = world.scheduler.fleet.runners.values()
        assert runner.placement.kind == "single"
        await world.quiesce()


async def test_a_late_answer_does_not_replace_a_newer_one(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await trio.sleep(60)
        world.hardware.query_time = 2.0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.scheduler.measure)
            await trio.sleep(0.1)
            world.hardware.query_time = 0.0
            world.hardware.take(GPU, 10 * GIB)
            await world.scheduler.measure()
            world.hardware.lag(1.99)  # so the first query brings what was the case when it began
        free = {device.id: device.reported_free for device in world.scheduler.devices()}
        assert free[GPU] == 14 * GIB


async def test_a_thousand_unloads_that_never_recover_leave_no_task(autojump_clock: MockClock) -> None:
    """R33, I18."""
    async with open_world(usual=Behaviour(load_time=0.0)) as world:
        world.hardware.lag(1e9)
        for _ in range(100):
            client = world.client("m", keep_alive=0.0, tokens=0)
            await client.ended.wait()
            assert client.outcome is Outcome.ANSWERED
        await world.quiesce()
