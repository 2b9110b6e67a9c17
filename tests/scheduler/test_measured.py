"""What a load has really taken, in place of the estimate, and what the next estimate learns from it (I07, I19, R64)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleet_builder import FleetBuilder, gib
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.config import wanted
from trio_ollama.scheduler.core.expected import expected
from trio_ollama.scheduler.core.footprint import Footprint
from trio_ollama.scheduler.core.measured import Taken, measured
from trio_ollama.scheduler.core.observed import identity
from trio_ollama.scheduler.core.values import (
    MODELS,
    RAM,
    Demand,
    DeviceFacts,
    LoadOptions,
    ModelFacts,
    Observation,
    Placement,
    Policy,
)

PARTS = Footprint(weights=900, cache=80, compute=20, driver=200, projector=7, vocabulary=3, process=30, prompt_cache=50)
DEVICES = [DeviceFacts("a", 5000, 5000), DeviceFacts("b", 5000, 5000), DeviceFacts(RAM, 9000, 9000, library="cpu")]
RESERVED = {"a": 1000, "b": 1000, RAM: 99, MODELS: 1}


def held(taken: Taken, gpus: tuple[str, ...], devices: list[DeviceFacts] = DEVICES) -> dict[str, int]:
    kind = ("cpu", "single", "group")[len(gpus)]
    reserved = {id_: RESERVED[id_] for id_ in (*gpus, RAM, MODELS)}
    return measured(taken, Placement(kind, gpus, {}, reserved, frozenset()), PARTS, reserved, devices)


@pytest.mark.parametrize(
    ("taken", "gpus", "result"),
    [
        # In RAM: the buffers in full, touched or not, the process and the vocabulary beside them, and the prompt cache.
        (Taken({}, 1000), (), {RAM: 1000 + 33 + 7 + 50}),
        (Taken({}, 1000, resident=600), (), {RAM: 1090}),
        (Taken({}, 1000, resident=2000), (), {RAM: 2050}),
        # On a GPU: its buffers, the driver's own, and the projector that no line tells of.
        (Taken({"a": 800}, 40), ("a",), {"a": 800 + 200 + 7, RAM: 40 + 33 + 50}),
        (Taken({"a": 800, "b": 400}, 40), ("a", "b"), {"a": 800 + 100 + 7, "b": 500, RAM: 123}),
        # Pages of files that went to the GPU can be dropped: only what is private counts.
        (Taken({"a": 800}, 40, resident=5000, private=100), ("a",), {"a": 1007, RAM: 150}),
        # All layers stayed in RAM, whatever was asked for: the GPU is not said to be full.
        (Taken({"a": 0}, 1000, resident=1100, private=1100), ("a",), {"a": 0, RAM: 1150}),
        # Never more than there is.
        (Taken({"a": 8000}, 20_000), ("a",), {"a": 5000, RAM: 9000}),
        # Nobody knows: what is reserved stays, and is never taken for zero.
        (Taken(None, None), ("a",), {"a": 1000, RAM: 99}),
        (Taken(None, None), (), {RAM: 99}),
        (Taken(None, None, resident=40), (), {RAM: 99}),
        (Taken(None, None, resident=400), (), {RAM: 450}),
        (Taken(None, 40), ("a",), {"a": 1000, RAM: 123}),
    ],
)
def test_what_is_known_takes_the_place_of_what_was_estimated(
    taken: Taken, gpus: tuple[str, ...], result: dict[str, int]
) -> None:
    assert held(taken, gpus) == {**result, MODELS: 1}


def test_R64_what_an_integrated_gpu_holds_is_held_in_RAM_as_well() -> None:
    devices = [replace(DEVICES[0], integrated=True), *DEVICES[1:]]
    assert held(Taken({"a": 800}, 40), ("a",), devices) == {"a": 1007, RAM: 123 + 1007, MODELS: 1}


# -- in the fleet -----------------------------------------------------------------------------------------------


def loading(size: float = 10, *, gpus: float = 24, **policy: int) -> FleetBuilder:
    fleet = FleetBuilder({"g0": gpus} if gpus else {}, ram=64, **policy)
    fleet.arrives(1, "X", size)
    runner = fleet.of("X")
    fleet.fleet.spawned(runner.gen, 1, fleet.now)
    return fleet


def load(fleet: FleetBuilder, taken: Taken, *, total: float = 0, on_gpus: float = 0) -> None:
    fleet.fleet.loaded(
        fleet.of("X").gen,
        context=0,
        total_bytes=gib(total),
        gpu_bytes=gib(on_gpus),
        report=None,
        now=fleet.now,
        taken=taken,
    )


def warnings(fleet: FleetBuilder) -> list[ev.Underestimated]:
    return [event for event in fleet.fleet.events if isinstance(event, ev.Underestimated)]


def test_the_reservation_becomes_what_was_measured() -> None:
    fleet = loading()
    runner = fleet.of("X")
    assert runner.reservation["g0"] == gib(10)
    load(fleet, Taken({"g0": gib(8)}, 0), total=8, on_gpus=8)
    assert runner.reservation == {"g0": gib(8), RAM: 0, MODELS: 1}
    assert (runner.total_bytes, runner.gpu_bytes) == (gib(8), gib(8))
    assert not warnings(fleet)


def test_what_is_measured_is_what_the_next_load_finds_reserved() -> None:
    """8 of 24 GiB are held, 10 were expected: 15 fit beside it, with headroom 80 %."""
    fleet = loading()
    load(fleet, Taken({"g0": gib(8)}, 0), total=8, on_gpus=8)
    fleet.reported(16)
    fleet.decided()
    fleet.arrives(2, "Y", 12.5)
    assert fleet.decided() == ["StartLoad 2 fits on g0"]


@pytest.mark.parametrize(("size", "told"), [(11, False), (12, True)])
def test_more_than_a_tenth_too_low_is_told_with_the_numbers(size: float, told: bool) -> None:
    fleet = loading()
    load(fleet, Taken({"g0": gib(size)}, 0), total=size, on_gpus=size)
    assert bool(warnings(fleet)) is told
    if told:
        assert warnings(fleet)[0].text() == (
            "X takes 12.0 GiB on GPUs, 20 % more than the 10.0 GiB that were expected (context 4096 x 1, batch 512); "
            "the next load of it will be planned with that"
        )


def test_a_measurement_beyond_the_promise_overbooks_and_is_told_once() -> None:
    """I07: the other load was promised what this one now holds."""
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("W", 12)
    fleet.arrives(1, "X", 8)
    fleet.fleet.spawned(fleet.of("X").gen, 1, fleet.now)
    load(fleet, Taken({"g0": gib(14)}, 0), total=14, on_gpus=14)
    fleet.looks()
    fleet.looks()
    told = [event for event in fleet.fleet.events if isinstance(event, ev.Overbooked)]
    assert [(event.reserved, event.total) for event in told] == [(gib(26), gib(24))]
    fleet.decided()
    fleet.arrives(2, "Y", 1)
    assert fleet.decided()[0].startswith("Claim"), "nothing is free"


def test_a_child_that_says_nothing_keeps_its_estimate_and_is_listed_with_it() -> None:
    fleet = loading()
    load(fleet, Taken(None, None, resident=gib(1), private=gib(1)))
    runner = fleet.of("X")
    assert runner.reservation == {"g0": gib(10), RAM: gib(1), MODELS: 1}
    assert (runner.total_bytes, runner.gpu_bytes) == (gib(11), gib(10))
    assert runner.observation is None


def test_in_RAM_a_runner_is_as_large_as_its_process() -> None:
    fleet = loading(gpus=0)
    load(fleet, Taken({}, gib(10), gib(10.5), gib(10.5)), total=10)
    assert (fleet.of("X").total_bytes, fleet.of("X").gpu_bytes) == (gib(10.5), 0)


def test_a_split_between_gpus_and_RAM_teaches_nothing() -> None:
    fleet = loading(40)
    assert fleet.of("X").placement.kind == "partial"
    load(fleet, Taken({"g0": gib(18)}, gib(30)), total=48, on_gpus=18)
    assert fleet.of("X").observation is None
    assert [event.where for event in warnings(fleet)] == ["in all"]
    assert "next load" not in warnings(fleet)[0].text()


# -- learning ---------------------------------------------------------------------------------------------------

MODEL = ModelFacts("X", "X", "/blobs/sha256-aa", file_size=1000, layers=10)
POLICY = Policy(prompt_cache=0)
CONFIG = wanted(Demand(MODEL, LoadOptions(num_ctx=4096)), POLICY)
GPU = [DEVICES[0]]


def seen(estimated: int, found: int, *, num_ctx: int = 4096, batch: int = 512, gpus: int = 1) -> Observation:
    on_gpus = (estimated, found) if gpus else (0, 0)
    in_ram = (0, 0) if gpus else (estimated, found)
    return Observation(num_ctx, 1, batch, "", gpus, *on_gpus, *in_ram)


@pytest.mark.parametrize(
    ("observed", "movable"),
    [
        ([], 1000),
        ([seen(1000, 1150)], 1150),
        ([seen(1000, 800)], 800),
        ([seen(2000, 2300)], 1150),  # the estimate itself may have changed since: it is the ratio that is kept
        ([seen(1000, 1150), seen(1000, 1050)], 1050),  # the last one counts
        # Nothing is believed that is out of all proportion.
        ([seen(1000, 10_000)], 2000),
        ([seen(1000, 1)], 500),
        # Another configuration: only upwards, by the worst.
        ([seen(1000, 800, num_ctx=512)], 1000),
        ([seen(1000, 1100, num_ctx=512), seen(1000, 1200, batch=64)], 1200),
        # On the CPU it is another matter.
        ([seen(1000, 1500, gpus=0)], 1000),
        ([seen(0, 700)], 1000),
    ],
)
def test_the_next_estimate_is_corrected_within_bounds(observed: list[Observation], movable: int) -> None:
    found = expected(replace(MODEL, observed=tuple(observed)), CONFIG, POLICY, GPU, batch=512)
    assert found.movable == movable
    assert found.parts.movable == 1000, "the estimate itself stays as it is"


def test_in_RAM_all_parts_are_corrected_but_the_users_prompt_cache() -> None:
    policy = Policy(prompt_cache=500)
    model = replace(MODEL, observed=(seen(1000, 1100, batch=128, gpus=0),))
    assert expected(model, CONFIG, policy, batch=128).total == 1100 + 500


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=4), st.booleans())
def test_no_history_moves_an_estimate_out_of_its_bounds(pairs: list[tuple[int, int]], same: bool) -> None:
    observed = tuple(seen(*pair, num_ctx=4096 if same else 8192) for pair in pairs)
    found = expected(replace(MODEL, observed=observed), CONFIG, POLICY, GPU, batch=512)
    assert 500 <= found.movable <= 2000


def test_a_load_is_planned_with_what_the_last_one_took() -> None:
    fleet = loading()
    load(fleet, Taken({"g0": gib(12)}, 0), total=12, on_gpus=12)
    observation = fleet.of("X").observation
    assert observation is not None
    assert (observation.gpu_estimated, observation.gpu_measured) == (gib(10), gib(12))
    again = FleetBuilder({"g0": 24}, ram=64)
    facts = replace(fleet.of("X").model, observed=(observation,))
    again.fleet.arrive(Demand(facts), again.now)
    assert again.of("X").reservation["g0"] == gib(12)
    again.fleet.spawned(again.of("X").gen, 1, again.now)
    load(again, Taken({"g0": gib(13.5)}, 0), total=13.5, on_gpus=13.5)
    assert not warnings(again), "it is no news any more"


def test_observations_belong_to_contents_not_to_places() -> None:
    assert identity(MODEL) == identity(replace(MODEL, path="/elsewhere/sha256-aa", name="Y")) == "sha256-aa"
    assert identity(replace(MODEL, path="/a/model.gguf")) == "/a/model.gguf"
    assert identity(replace(MODEL, adapters=("/blobs/sha256-bb",))) == "sha256-aa+sha256-bb"
