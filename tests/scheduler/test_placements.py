"""Where a load may go: the ordered placements, and what holds for every one of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policy_facts import GIB, MIB, config, gpu, model
from tests.support.shapes import LLAMA, shapes
from trio_ollama.scheduler.core.footprint import footprint
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.memory import batch_surcharge, predict_vram
from trio_ollama.scheduler.core.placements import never_fits, placements
from trio_ollama.scheduler.core.pools import Pools
from trio_ollama.scheduler.core.records import Runner
from trio_ollama.scheduler.core.values import MODELS, RAM, DeviceFacts, LaunchConfig, ModelFacts, Placement, Policy

POLICY = Policy()


def ram(total: int, **changes: object) -> DeviceFacts:
    return replace(DeviceFacts(RAM, total, total, library="cpu"), **changes)  # type: ignore[arg-type]


def of_size(size: int, **changes: object) -> ModelFacts:
    """A model that takes exactly `size` bytes, whatever its context."""
    return model(file_size=size, head_dim=0, **changes)


def free(devices: list[DeviceFacts]) -> dict[str, int]:
    return {**{device.id: max(0, device.reported_free - device.overhead) for device in devices}, MODELS: 3}


def place(size: int, devices: list[DeviceFacts], policy: Policy = POLICY, **options: object) -> tuple[Placement, ...]:
    return placements(of_size(size), config(**options), devices, free(devices), policy)


MACHINE = [gpu("a", 10 * GIB), gpu("b", 20 * GIB), ram(64 * GIB)]


def test_R63_every_single_gpu_that_holds_the_model_in_full_is_offered() -> None:
    found = place(8 * GIB, MACHINE)
    assert [(placement.kind, placement.gpus) for placement in found] == [("single", ("a",)), ("single", ("b",))]
    assert [placement.gpus for placement in place(8 * GIB + 1, MACHINE)] == [("b",)]
    assert found[0].need == {"a": 10 * GIB, RAM: 0, MODELS: 1}
    assert found[0].reservation == {"a": 8 * GIB, RAM: 0, MODELS: 1}
    assert {placement.main_gpu for placement in found} == {0}


def test_R63_what_no_single_gpu_holds_goes_over_the_group_in_proportion() -> None:
    [group] = place(21 * GIB, MACHINE)
    assert (group.kind, group.gpus, group.load_lock, group.main_gpu) == ("group", ("a", "b"), {"a", "b"}, None)
    assert group.reservation == {"a": 7 * GIB, "b": 14 * GIB, RAM: 0, MODELS: 1}


def test_R63_spread_takes_the_group_at_once() -> None:
    [group] = place(8 * GIB, MACHINE, replace(POLICY, spread=True))
    assert group.kind == "group"


def test_R42_the_rest_goes_to_ram_and_loads_there_too() -> None:
    [partial] = place(30 * GIB, MACHINE)
    assert partial.kind == "partial"
    assert partial.need == {"a": 10 * GIB, "b": 20 * GIB, RAM: 6 * GIB, MODELS: 1}
    assert partial.reservation == {"a": 8 * GIB, "b": 16 * GIB, RAM: 6 * GIB, MODELS: 1}
    assert partial.load_lock == {"a", "b", RAM}


def test_R66_mapped_weights_may_exceed_ram() -> None:
    [partial] = place(100 * GIB, MACHINE)
    assert partial.reservation[RAM] == 64 * GIB


def test_R46_without_gpus_and_without_offload_there_is_ram() -> None:
    for found in (place(8 * GIB, [ram(64 * GIB)]), place(8 * GIB, MACHINE, num_gpu=0)):
        [cpu] = found
        assert (cpu.kind, cpu.gpus, cpu.load_lock) == ("cpu", (), {RAM})
        assert cpu.need == cpu.reservation == {RAM: 8 * GIB, MODELS: 1}


def test_R46_explicit_partial_offload_needs_a_model_unit_only() -> None:
    [partial] = place(33 * GIB, MACHINE, num_gpu=10)
    assert (partial.kind, partial.layers, partial.need) == ("explicit_partial", 10, {MODELS: 1})
    assert partial.reservation["a"] + partial.reservation["b"] == 10 * GIB
    assert partial.reservation[RAM] == 23 * GIB


def test_R63_main_gpu_is_an_index_in_each_library_and_launched_as_number_0() -> None:
    machine = [
        gpu("cuda0", 10 * GIB),
        gpu("rocm0", 20 * GIB, library="ROCm"),
        gpu("rocm1", 24 * GIB, library="ROCm"),
        ram(64 * GIB),
    ]
    [single] = place(8 * GIB, machine, main_gpu=1)
    assert (single.gpus, single.main_gpu) == (("rocm1",), 0)
    [partial] = place(40 * GIB, machine, main_gpu=0)
    assert (partial.kind, partial.gpus, partial.main_gpu) == ("partial", ("rocm0",), 0)
    assert len(place(8 * GIB, machine, main_gpu=7)) == 3


def test_the_only_gpu_is_launched_without_a_number() -> None:
    [single] = place(8 * GIB, [gpu("a", 10 * GIB), ram(64 * GIB)])
    assert single.main_gpu is None


def test_R64_an_integrated_gpu_offers_no_more_than_the_ram_there_is() -> None:
    machine = [gpu("shared", 300 * GIB, integrated=True), ram(80 * GIB)]
    [single] = place(64 * GIB, machine)
    assert single.need == {"shared": 80 * GIB, RAM: 80 * GIB, MODELS: 1}
    assert single.reservation == {"shared": 64 * GIB, RAM: 64 * GIB, MODELS: 1}
    [partial] = place(65 * GIB, machine)
    assert partial.kind == "partial"
    assert partial.need["shared"] == 80 * GIB


@pytest.mark.parametrize(("size", "refused"), [(27 * GIB + GIB // 5, False), (28 * GIB, True)])
def test_R42_what_cannot_fit_on_the_bare_machine_is_known_before(size: int, refused: bool) -> None:
    machine = [gpu("a", 24 * GIB), ram(8 * GIB)]  # 19.2 + 8
    assert (never_fits(of_size(size), config(), machine, POLICY) is not None) is refused
    assert never_fits(of_size(size), config(use_mmap=True), machine, POLICY) is None


# -- two estimates: upstream's formula asks, the footprint is reserved -----------------------------------------------


def shaped(size: int, *, cached: int = 0, **changes: object) -> ModelFacts:
    """A model whose file and compute buffers are as told, and which the formula gives no cache."""
    return of_size(size, shape=replace(LLAMA, weights=size, cached=cached), **changes)


def test_I07_on_gpus_the_formula_asks_and_the_footprint_is_held() -> None:
    facts, machine = shaped(8 * GIB), [gpu("a", 10 * GIB), ram(64 * GIB)]
    [single] = placements(facts, config(), machine, free(machine), POLICY)
    held = footprint(facts, config(), POLICY, machine[:1], batch=512)
    assert single.need == {"a": 10 * GIB, RAM: held.host, MODELS: 1}
    assert single.reservation == {"a": held.movable, RAM: held.host, MODELS: 1}
    assert 8 * GIB < held.movable < 10 * GIB
    assert 0 < held.host < 100 * MIB


def test_I07_where_the_footprint_is_more_it_is_asked_for() -> None:
    """A cache that the formula does not see: 4096 tokens of 1 MiB."""
    facts = shaped(8 * GIB, cached=MIB // 2)
    for free_bytes, kind in ((10 * GIB, "partial"), (14 * GIB, "single")):
        machine = [gpu("a", free_bytes), ram(64 * GIB)]
        [placement] = placements(facts, config(num_ctx=4096), machine, free(machine), POLICY)
        assert placement.kind == kind
    assert placement.need == placement.reservation
    assert placement.need["a"] > 12 * GIB
    two = [gpu("a", 10 * GIB), gpu("b", 10 * GIB), ram(64 * GIB)]
    [group] = placements(facts, config(num_ctx=4096), two, free(two), POLICY)
    assert (group.kind, group.need) == ("group", group.reservation)
    assert group.need["a"] + group.need["b"] > 12 * GIB + 2 * 457 * MIB


def test_a_quantized_cache_is_reserved_as_it_is_and_asked_for_as_upstream_does() -> None:
    facts = model(file_size=2 * GIB, shape=replace(LLAMA, weights=2 * GIB, cached=65536))
    machine = [gpu("a", 24 * GIB), ram(64 * GIB)]
    wanted = config(num_ctx=65536, num_batch=512, num_batch_auto=False)
    plain, quantized = (
        placements(facts, wanted, machine, free(machine), Policy(cache_type=kind))[0] for kind in ("", "q4_0")
    )
    assert plain.need["a"] == quantized.need["a"] == -(-10 * GIB * 100 // 80)
    assert quantized.reservation["a"] < plain.reservation["a"] - 5 * GIB
    [cpu] = placements(facts, wanted, machine[1:], free(machine[1:]), Policy(cache_type="q4_0"))
    assert cpu.need == cpu.reservation  # in RAM upstream asks for nothing
    assert cpu.need[RAM] < 5 * GIB


def test_R42_refused_only_if_both_estimates_say_so() -> None:
    facts = model(file_size=2 * GIB, shape=replace(LLAMA, weights=2 * GIB, cached=65536))
    machine, wanted = [ram(8 * GIB)], config(num_ctx=65536)  # 8 GiB of cache by the formula
    assert never_fits(facts, wanted, machine, POLICY) is not None
    assert never_fits(facts, wanted, machine, Policy(cache_type="q4_0")) is None
    heavy = shaped(GIB, cached=MIB)  # 8 GiB of cache by the footprint alone
    assert never_fits(heavy, config(num_ctx=4096), machine, POLICY) is None
    [cpu] = placements(heavy, config(num_ctx=4096), machine, free(machine), POLICY)
    assert cpu.need == {RAM: 8 * GIB, MODELS: 1}


# -- what holds for all -------------------------------------------------------------------------------------------

sizes = st.integers(0, 1 << 40) | st.sampled_from([0, 1, GIB, 24 * GIB * 80 // 100, (1 << 64) - 1])


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[DeviceFacts], dict[str, int]]:
    """Up to four GPUs and RAM, and a base no larger than each."""
    devices = []
    for number in range(draw(st.integers(0, 4))):
        total = draw(sizes)
        library, integrated = draw(st.sampled_from([("cuda", False), ("cuda", True), ("rocm", False)]))
        devices.append(gpu(f"g{number}", total, library=library, integrated=integrated, overhead=draw(sizes)))
    devices.append(ram(draw(sizes)))
    base = {device.id: draw(st.integers(0, max(0, device.total - device.overhead))) for device in devices}
    return devices, {**base, MODELS: draw(st.integers(1, 9))}


configs = st.builds(
    config,
    num_gpu=st.sampled_from([-1, 0, 1, 20, 33, 99]),
    main_gpu=st.sampled_from([None, -1, 0, 1, 9]),
    num_ctx=st.sampled_from([4, 4096, 262144]),
    parallel=st.sampled_from([1, 4]),
)
plain = st.builds(model, file_size=sizes, layers=st.integers(0, 100), head_dim=st.sampled_from([0, 128]))
facts = plain | st.builds(lambda plain, shape: replace(plain, shape=shape), plain, shapes)
policies = st.builds(Policy, spread=st.booleans(), prompt_cache=st.sampled_from([0, GIB]))


@given(facts, configs, machines(), policies)
def test_I21_every_placement_can_start_once_all_our_runners_are_gone(
    model: ModelFacts, config: LaunchConfig, machine: tuple[list[DeviceFacts], dict[str, int]], policy: Policy
) -> None:
    devices, base = machine
    found = placements(model, config, devices, base, policy)
    assert found
    for placement in found:
        for id_, amount in (*placement.need.items(), *placement.reservation.items()):
            assert type(amount) is int
            assert 0 <= amount <= base[id_]
        if placement.kind != "explicit_partial":
            assert all(placement.need[id_] >= amount for id_, amount in placement.reservation.items())
        assert placement.load_lock >= set(placement.gpus)
        assert (RAM in placement.load_lock) is (placement.kind in ("cpu", "partial", "explicit_partial"))
        if model.shape is not None:
            continue
        held = sum(amount for id_, amount in placement.reservation.items() if id_ != MODELS)
        shared = sum(placement.reservation[gpu.id] for gpu in devices if gpu.integrated and gpu.id in placement.gpus)
        # A large batch has bytes of its own, on GPUs (A69).
        batch = batch_surcharge(2048, True) if placement.gpus else 0
        size = predict_vram(model, config.num_ctx, config.parallel) + batch
        assert held - shared <= size + policy.prompt_cache + shared


@given(facts, configs, machines(), policies, st.randoms(use_true_random=False))
def test_placements_do_not_depend_on_the_order_of_a_dict(
    model: ModelFacts,
    config: LaunchConfig,
    machine: tuple[list[DeviceFacts], dict[str, int]],
    policy: Policy,
    random: Random,
) -> None:
    devices, base = machine
    shuffled = list(base.items())
    random.shuffle(shuffled)
    assert placements(model, config, devices, base, policy) == placements(
        model, config, devices, dict(shuffled), policy
    )


@given(st.lists(st.tuples(facts, configs), max_size=6), machines(), policies)
def test_I07_loads_that_start_one_after_the_other_never_take_more_than_there_is(
    wishes: list[tuple[ModelFacts, LaunchConfig]], machine: tuple[list[DeviceFacts], dict[str, int]], policy: Policy
) -> None:
    """Each starts where its needs fit beside what the others have reserved."""
    devices, _ = machine
    runners: list[Runner] = []
    for gen, (facts_of, wanted) in enumerate(wishes):
        pools = Pools(devices, runners, 100)
        for placement in placements(facts_of, wanted, devices, pools.base, policy):
            if placement.kind != "explicit_partial" and pools.fits_now(placement.need):
                runners.append(Runner(gen, facts_of, wanted, placement, placement.reservation, 0, State.READY))
                break
    for device in devices:
        held = sum(runner.holds(device.id) for runner in runners)
        assert held + min(device.overhead, device.total) <= device.total or held == 0


@given(machines(), st.lists(st.tuples(sizes, st.sampled_from(State), st.booleans()), max_size=6), st.integers(0, 9))
def test_I08_pools_are_never_negative(
    machine: tuple[list[DeviceFacts], dict[str, int]], held: list[tuple[int, State, bool]], limit: int
) -> None:
    devices, _ = machine
    runners = []
    for gen, (amount, state, stuck) in enumerate(held):
        placement = Placement("single", ("g0",), {}, {"g0": amount, RAM: amount, MODELS: 1}, frozenset({"g0"}))
        runner = Runner(gen, of_size(amount), config(), placement, placement.reservation, 0, state)
        runner.stuck = stuck and state is State.STOPPING
        runners.append(runner)
    pools = Pools(devices, runners, limit)
    pools.draw({"g0": 1 << 70, RAM: 5, MODELS: 1}, pools.later, pools.soon, pools.now)
    for pool in (pools.now, pools.soon, pools.later, pools.base):
        assert all(type(amount) is int and amount >= 0 for amount in pool.values())


@pytest.mark.parametrize("last", [0, 1])
def test_I07_no_byte_of_a_group_lands_where_there_is_none(last: int) -> None:
    """A byte that cannot be divided was given to the last GPU, also to one that has nothing."""
    sizes = {"g0": 1, "g1": 0, "g2": 1, "g3": last}
    devices = [gpu(id_, free) for id_, free in sizes.items()]
    devices.append(DeviceFacts(RAM, 0, 0, library="cpu"))
    base = {**sizes, RAM: 0, MODELS: 1}
    [placement] = placements(model(file_size=1, layers=0), config(num_ctx=4, parallel=1), devices, base, Policy())
    assert placement.kind == "group"
    assert all(0 <= amount <= base[id_] for id_, amount in placement.reservation.items())
    assert sum(placement.reservation[id_] for id_ in sizes) == 1


def test_R63_spread_over_a_library_with_one_gpu_is_no_partial_offload() -> None:
    devices = [gpu("g0", 0), gpu("g1", 24 * GIB, library="rocm"), DeviceFacts(RAM, GIB, GIB, library="cpu")]
    base = {device.id: device.total for device in devices} | {MODELS: 1}
    [placement] = placements(model(file_size=8 * GIB, layers=0), config(), devices, base, Policy(spread=True))
    assert (placement.kind, placement.gpus, placement.main_gpu) == ("single", ("g1",), 0)


def test_R63_spread_over_parts_of_gpus_offers_each_of_them() -> None:
    """One process uses one part: a second model goes to the other part, instead of evicting the first."""
    devices = [replace(gpu(f"MIG-{number}", 20 * GIB), alone=True) for number in range(2)]
    found = place(8 * GIB, [*devices, ram(64 * GIB)], Policy(spread=True))
    assert [(placement.kind, placement.gpus) for placement in found] == [("single", ("MIG-0",)), ("single", ("MIG-1",))]
