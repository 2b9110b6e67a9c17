"""Every decision says why, and of what numbers it was made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from trio.testing import MockClock

from simulations.world import open_world
from tests.support.fleet_builder import GIB, FleetBuilder, demand, gib
from tests.support.policy_facts import gpu
from trio_ollama.scheduler import Policy
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.config import notes, wanted
from trio_ollama.scheduler.core.decisions import Because, Drain, StartLoad
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.placements import placements
from trio_ollama.scheduler.core.stages import STAGE_OF, Stage, stage
from trio_ollama.scheduler.core.values import MODELS, RAM, DeviceFacts
from trio_ollama.scheduler.scheduler import REMEMBERED


def last(fleet: FleetBuilder, kind: type[Any]) -> Any:
    return [event for event in fleet.fleet.events if isinstance(event, kind)][-1]


def test_an_eviction_says_what_was_short_and_who_else_could_have_gone() -> None:
    fleet = FleetBuilder()
    x, y = fleet.runner("X", 10), fleet.runner("Y", 10, keep=900 * 10**9)
    fleet.arrives(1, "B", 10)  # needs 12.5, has 4
    [drain] = [one for decisions in fleet.fleet.passes for one in decisions if isinstance(one, Drain)]
    assert drain == Drain(x.gen, Because.EVICTED_FOR, 1, "g0", gib(8.5), (y.gen,))
    text = last(fleet, ev.DrainStarted).text()
    assert "8.5 GiB on g0 short" in text
    assert f"not chosen: {y.gen}" in text


def test_the_model_limit_is_named_as_such() -> None:
    fleet = FleetBuilder(max_models=1)
    fleet.runner("X", 1)
    fleet.arrives(1, "B", 1)
    drain = last(fleet, ev.DrainStarted)
    assert (drain.resource, drain.bytes) == (MODELS, 1)
    assert "1 place among the loaded models short" in drain.text()


def test_a_load_says_what_was_free_and_where_else_it_could_have_gone() -> None:
    fleet = FleetBuilder({"g0": 24, "g1": 20})
    fleet.arrives(1, "B", 8)
    [start] = [one for decisions in fleet.fleet.passes for one in decisions if isinstance(one, StartLoad)]
    assert dict(start.free)["g0"] == 24 * GIB
    assert start.alternatives == (("g1",),)
    assert "8.0 GiB on g0 (24.0 GiB free)" in last(fleet, ev.LoadStarted).text()


def test_a_wait_says_what_is_short() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 14, leases=1)
    fleet.arrives(1, "B", 16)
    wait = last(fleet, ev.RequestWaits)
    assert (wait.because, wait.resource, wait.bytes) == (Because.EVICTING_BUSY, "g0", 10 * GIB)


def test_what_cannot_be_heeded_is_noted() -> None:
    """A62, A108."""
    devices = (DeviceFacts("g0", 24 * GIB, 24 * GIB), DeviceFacts(RAM, GIB, GIB, library="cpu"))
    wish = demand("m", 1, main_gpu=3)
    assert notes(wish, devices, Policy()) == ("there is no GPU 3, so main_gpu is not heeded",)
    assert notes(demand("m", 1, main_gpu=0), devices, Policy()) == ()
    vision = replace(demand("m", 1), model=replace(demand("m", 1).model, architecture="qwen3vl"))
    assert notes(vision, devices, Policy(num_parallel=4)) == (
        "its architecture qwen3vl answers one request at a time only",
    )
    assert notes(vision, devices, Policy()) == ()


@pytest.mark.parametrize(("batch", "surcharge"), [(512, 0), (1024, 768 << 20), (2048, 2 * GIB)])
def test_a_batch_is_part_of_what_a_load_needs(batch: int, surcharge: int) -> None:
    """A69, G28: also one that was asked for."""
    device = gpu("g0", 24 * GIB)
    config = wanted(demand("m", 8, num_batch=batch, num_batch_auto=False), Policy())
    base = {"g0": 24 * GIB, RAM: 64 * GIB, MODELS: 3}
    devices = (device, DeviceFacts(RAM, 64 * GIB, 64 * GIB, library="cpu"))
    [placement] = placements(demand("m", 8).model, config, devices, base, Policy())
    assert placement.reservation["g0"] == 8 * GIB + surcharge
    assert placement.need["g0"] == -(-(8 * GIB + surcharge) * 100 // 80)


def test_every_reason_to_wait_has_a_stage() -> None:
    fleet = FleetBuilder(max_models=1)
    fleet.runner("X", 1, leases=1)
    fleet.arrives(1, "B", 1)
    assert stage(fleet.fleet.waiters[1]) is Stage.WAITING_FOR_DRAIN
    fleet.leaves(1)
    assert last(fleet, ev.RequestLeft).stage is Stage.WAITING_FOR_DRAIN
    assert set(STAGE_OF.values()) == {Stage.QUEUED, Stage.WAITING_FOR_DRAIN, Stage.WAITING_FOR_LOAD}


@pytest.mark.parametrize("policy", [False, True])
@pytest.mark.parametrize("wish", [None, False, True])
def test_whoever_leaves_a_load_last_says_what_becomes_of_it(policy: bool, wish: bool | None) -> None:
    """R03: for all, or for one request."""
    fleet = FleetBuilder(finish_abandoned_load=policy)
    first = fleet.arrives(1, "B", 8)
    second = fleet.fleet.arrive(replace(demand("B", 8), finish_load=wish), fleet.now)
    fleet.leaves(first)
    fleet.leaves(second)
    finishes = policy if wish is None else wish
    assert fleet.of("B").state is (State.SPAWNING if finishes else State.STOPPING)


async def test_the_last_events_are_kept(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        client = world.client("m", tokens=1)
        await client.ended.wait()
        kinds = [type(event) for event in world.scheduler.recent()]
        assert kinds[0] is ev.LoadStarted
        assert ev.RunnerLoaded in kinds
        assert ev.LeaseGranted in kinds
        for _ in range(REMEMBERED):
            world.scheduler._remember(world.scheduler.recent()[0])
        assert len(world.scheduler.recent()) == REMEMBERED


def test_a_device_that_shrank_is_said_to_be_overbooked_once() -> None:
    """A113: the driver says there is less than our runners hold, say, after another card took its place."""
    fleet = FleetBuilder(24)
    fleet.runner("X", 20)
    fleet.fleet._figures.devices = tuple(
        replace(device, total=16 * GIB) if device.id == "g0" else device for device in fleet.fleet.devices
    )
    fleet.looks()
    fleet.looks()
    [warning] = [event for event in fleet.fleet.events if isinstance(event, ev.Overbooked)]
    assert warning.text() == "20.0 GiB are reserved on g0, which has 16.0 GiB: nothing counts as free there"
