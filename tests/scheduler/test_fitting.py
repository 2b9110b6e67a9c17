"""What `fit` says is what the planner then does, in numbers that add up; nothing changes by looking."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fleet_builder import FleetBuilder, demand, gib
from tests.support.shapes import SMOLLM2
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.fit import Fit, Verdict
from trio_ollama.scheduler.core.fitting import fit
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.values import RAM, Demand, LoadOptions, ModelFacts, Observation, Policy


def look(fleet: FleetBuilder, name: str = "X", size: float = 8, **wish: Any) -> Fit:
    return fit(fleet.fleet, demand(name, size, **wish))


def victims(found: Fit) -> list[str]:
    return [victim.name for victim in found.victims]


# -- verdicts ---------------------------------------------------------------------------------------------------


def test_it_fits_beside_what_is_there() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("A", 8)
    found = look(fleet)
    assert (found.verdict, found.placement.kind, found.placement.gpus) == (Verdict.FITS, "single", ("g0",))
    device = next(device for device in found.devices if device.id == "g0")
    assert (device.total, device.free, device.reserved, device.usable) == (gib(24), gib(16), gib(8), gib(16))
    assert (device.needed, device.held, device.left) == (gib(10), gib(8), gib(8))
    assert not found.victims


def test_idle_runners_that_would_go() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("A", 20)
    found = look(fleet)
    assert (found.verdict, victims(found)) == (Verdict.EVICTS, ["A"])
    device = found.devices[0]
    assert (device.usable, device.returning, device.left) == (gib(4), gib(20), gib(16))
    assert not found.victims[0].busy


def test_busy_runners_that_would_be_waited_for() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("A", 20, leases=1)
    found = look(fleet)
    assert (found.verdict, victims(found)) == (Verdict.EVICTS_BUSY, ["A"])
    assert found.victims[0].busy


def test_memory_that_comes_back_anyway() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("A", 20, state=State.RECOVERING)
    found = look(fleet)
    assert (found.verdict, victims(found)) == (Verdict.RETURNING, [])
    assert found.devices[0].left == gib(16)


def test_what_can_neither_be_stopped_nor_waited_for_blocks() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("A", 20, state=State.LOADING)
    assert look(fleet).verdict is Verdict.BLOCKED


def test_it_is_loaded_already() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    runner = fleet.runner("X", 8, ctx=8192)
    found = look(fleet, ctx=8192)
    assert (found.verdict, found.runner) == (Verdict.LOADED, runner)
    assert found.config is runner.config
    device = found.devices[0]
    assert (device.held, device.needed, device.left) == (gib(8), 0, gib(16))


def test_it_would_be_loaded_again_with_other_settings() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("X", 8, ctx=8192)
    found = look(fleet, ctx=2048)
    assert (found.verdict, victims(found)) == (Verdict.EVICTS, ["X"])
    again = fit(fleet.fleet, demand("X", 8, ctx=8192), Policy(num_parallel=4))
    assert (again.verdict, again.config.parallel) == (Verdict.EVICTS, 4)


def test_it_never_fits() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=16)
    found = look(fleet, size=100)
    assert found.verdict is Verdict.NEVER
    needed, there = found.facts
    assert needed == gib(100) > there > gib(16)


def test_the_place_is_the_planners() -> None:
    """The GPU with most free; the larger one for what the smaller cannot hold; both; in part."""
    fleet = FleetBuilder({"g0": 24, "g1": 48}, ram=512)
    for size, kind, gpus in (
        (10, "single", ("g1",)),
        (30, "single", ("g1",)),
        (50, "group", ("g0", "g1")),
        (90, "partial", ("g0", "g1")),
    ):
        found = look(fleet, size=size)
        assert (found.verdict, found.placement.kind, found.placement.gpus) == (Verdict.FITS, kind, gpus)
    assert look(fleet, size=10, num_gpu=0).placement.kind == "cpu"
    assert look(fleet, size=10, num_gpu=8).placement.kind == "explicit_partial"


# -- it is true -------------------------------------------------------------------------------------------------


@given(
    loaded=st.lists(
        st.tuples(st.integers(1, 24), st.sampled_from(["g0", "g1", RAM]), st.booleans()), max_size=4, unique_by=id
    ),
    size=st.integers(1, 90),
    num_gpu=st.sampled_from([-1, 0, 5]),
)
def test_what_it_says_is_what_the_planner_does(loaded: list[tuple[int, str, bool]], size: int, num_gpu: int) -> None:
    fleet = FleetBuilder({"g0": 24, "g1": 24}, ram=64)
    for number, (amount, on, busy) in enumerate(loaded):
        there = next(device.reported_free for device in fleet.fleet.devices if device.id == on)
        if gib(amount) <= there:
            fleet.runner(f"R{number}", amount, on=on, leases=int(busy))
    found = look(fleet, size=size, num_gpu=num_gpu)
    fleet.arrives(1, "X", size, num_gpu=num_gpu)
    decided, events = fleet.decided(), fleet.fleet.events
    match found.verdict:
        case Verdict.FITS:
            started = next(event for event in events if isinstance(event, ev.LoadStarted))
            assert (started.kind, started.gpus) == (found.placement.kind, found.placement.gpus)
            assert (started.num_ctx, started.num_batch) == (found.config.num_ctx, found.config.num_batch)
            assert dict(started.reservation).items() <= found.placement.reservation.items() or num_gpu == 5
        case Verdict.EVICTS | Verdict.EVICTS_BUSY:
            claimed = fleet.fleet.waiters[1].claim
            drained = {line.split()[1] for line in decided if line.startswith("Drain")}
            assert set(victims(found)) == drained | {fleet.fleet.runners[gen].key for gen in claimed}
        case Verdict.NEVER:
            assert decided == ["Refuse 1 never_fits"]
        case _:
            assert not [line for line in decided if line.startswith("StartLoad")]


def test_looking_changes_nothing() -> None:
    fleet = FleetBuilder({"g0": 24}, ram=64)
    fleet.runner("A", 20)
    state = (repr(fleet.fleet.runners), dict(fleet.fleet.waiters), len(fleet.fleet.events))
    look(fleet)
    assert state == (repr(fleet.fleet.runners), dict(fleet.fleet.waiters), len(fleet.fleet.events))
    assert not fleet.fleet.take_effects()


# -- numbers ----------------------------------------------------------------------------------------------------

MODEL = ModelFacts(
    "S", "S", "/s", file_size=98 << 20, layers=30, kv_heads=3, head_dim=64, train_context=65536, shape=SMOLLM2
)


def test_parts_add_up_to_the_estimate_and_say_where_they_go() -> None:
    for gpus, places in (({}, {False}), ({"g0": 24}, {True, False})):
        fleet = FleetBuilder(gpus, ram=64, prompt_cache=gib(1))
        found = fit(fleet.fleet, Demand(MODEL))
        assert sum(part.size for part in found.parts) == found.expected.parts.total
        assert {part.on_gpus for part in found.parts} == places
        on_gpus = sum(part.size for part in found.parts if part.on_gpus)
        assert on_gpus == (found.expected.movable if gpus else 0)
        assert found.placement.reservation.get("g0", 0) == on_gpus


def test_contexts_and_the_longest_that_fits_in_full() -> None:
    fleet = FleetBuilder({"g0": 2}, ram=64)
    found = fit(fleet.fleet, Demand(MODEL))
    rows = found.contexts
    assert [row.num_ctx for row in rows] == [4096, 8192, 32768, 65536]
    assert [row.full for row in rows] == [True, True, True, False]
    assert rows[3].kind == "partial"
    expected = [row.expected for row in rows]
    assert expected == sorted(expected)
    assert 32768 <= found.largest < 65536
    assert found.largest % 256 == 0
    for more, kind in ((0, "single"), (512, "partial")):
        options = LoadOptions(num_ctx=found.largest + more, num_ctx_auto=False)
        assert fit(fleet.fleet, Demand(MODEL, options)).placement.kind == kind


@pytest.mark.parametrize(("ram", "full", "longest"), [(64, True, 65536), (0.05, False, 0)])
def test_in_RAM_all_fits_or_not(ram: float, full: bool, longest: int) -> None:
    found = fit(FleetBuilder({}, ram=ram).fleet, Demand(MODEL))
    assert {row.full for row in found.contexts} == {full}
    assert found.largest == longest


def test_beside_what_is_loaded_less_fits_now() -> None:
    fleet = FleetBuilder({"g0": 2}, ram=64)
    fleet.runner("A", 1)
    assert [row.now for row in fit(fleet.fleet, Demand(MODEL)).contexts] == [True, True, False, False]


def test_what_was_learnt_is_shown_and_used() -> None:
    fleet = FleetBuilder({}, ram=64)
    first = fit(fleet.fleet, Demand(MODEL))
    parts = first.expected.parts.total
    seen = Observation(4096, 1, first.config.num_batch, "", 0, 0, 0, parts, parts + gib(1))
    found = fit(fleet.fleet, Demand(replace(MODEL, observed=(seen,))))
    assert found.expected.before == seen
    assert found.placement.reservation[RAM] >= min(parts + gib(1), 2 * parts) - 2
    assert found.formula == first.formula
