"""Which GPUs a load goes to (R63, R64, G10, G28)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policy_facts import GB, byte_counts, device_lists, gpu
from trio_ollama.scheduler.core.memory import available, fits
from trio_ollama.scheduler.core.placement import Selection, group_by_library, order_key, select, used_gpus
from trio_ollama.scheduler.core.values import RAM, DeviceFacts


def cuda(id_: str, free: int, **changes: Any) -> DeviceFacts:
    return gpu(id_, free * GB, **changes)


def rocm(id_: str, free: int, **changes: Any) -> DeviceFacts:
    return gpu(id_, free * GB, library="rocm", **changes)


def chosen(devices: list[DeviceFacts], predicted: int, **changes: Any) -> tuple[list[str], int | None, str]:
    values: dict[str, Any] = {"num_gpu": -1, "main_gpu": None, "spread": False, "system_free": None}
    selection = select(devices, predicted * GB, **{**values, **changes})
    return [device.id for device in selection.gpus], selection.main_gpu, selection.kind


PAIR = [cuda("0", 10), cuda("1", 20)]
SHARED = {"integrated": True}


@pytest.mark.parametrize(
    ("devices", "predicted", "changes", "expected"),
    [
        # TestSelectLlamaServerPlacement
        (PAIR, 8, {}, (["1"], 0, "single")),
        (PAIR, 8, {"spread": True}, (["0", "1"], None, "group")),
        ([cuda("0", 10), cuda("1", 18), rocm("2", 12)], 30, {}, (["0", "1"], None, "group")),
        # CUDA shows a process only one part of a GPU.
        ([cuda("0", 10, alone=True), cuda("1", 18, alone=True)], 8, {"spread": True}, (["1"], None, "group")),
        ([cuda("0", 10, alone=True), cuda("1", 18)], 24, {}, (["1"], None, "group")),
        ([cuda("0", 10), rocm("r0", 20), rocm("r1", 24)], 8, {"main_gpu": 1}, (["r1"], 0, "main_gpu")),
        (
            [cuda("i", 32, **SHARED), rocm("d", 16)],
            12,
            {"system_free": 14 * GB},
            (["d"], 0, "single"),
        ),
        ([cuda("i", 32, **SHARED), rocm("d", 10)], 8, {"system_free": 64 * GB}, (["d"], 0, "single")),
        # nothing to choose
        ([], 8, {}, ([], None, "given")),
        ([cuda("0", 10)], 99, {}, (["0"], None, "given")),
        ([cuda("0", 10)], 1, {"main_gpu": 0}, (["0"], 0, "given")),
        (PAIR, 8, {"num_gpu": 0, "main_gpu": 1}, (["0", "1"], 1, "given")),
        # 80 %: equality fits, a byte more does not
        ([cuda("0", 10), cuda("1", 9)], 8, {}, (["0"], 0, "single")),
        ([cuda("0", 9), cuda("1", 9)], 8, {}, (["0", "1"], None, "group")),
        # unknown size: no single fit
        (PAIR, 0, {}, (["0", "1"], None, "group")),
        # the largest that fits over all libraries; ties to the earlier
        ([cuda("0", 10), rocm("1", 20)], 8, {}, (["1"], 0, "single")),
        ([cuda("0", 20), cuda("1", 20)], 8, {}, (["0"], 0, "single")),
        # an integrated one only when no discrete one fits, and within the system's memory
        ([cuda("i", 32, **SHARED), rocm("d", 10)], 9, {"system_free": 64 * GB}, (["i"], 0, "single")),
        ([cuda("i", 32, **SHARED), rocm("d", 10)], 9, {"system_free": 11 * GB}, (["d"], None, "group")),
        # equal under the system's limit: the earlier
        ([cuda("i", 12, **SHARED), cuda("j", 20, **SHARED)], 8, {"system_free": 10 * GB}, (["i"], 0, "single")),
        # main_gpu: within each library, before spread, and not limited to what fits
        (PAIR, 99, {"main_gpu": 0}, (["0"], 0, "main_gpu")),
        (PAIR, 8, {"main_gpu": 1, "spread": True}, (["1"], 0, "main_gpu")),
        ([cuda("0", 10), rocm("r0", 20)], 8, {"main_gpu": 0}, (["r0"], 0, "main_gpu")),
        ([cuda("0", 10), rocm("r0", 20, **SHARED)], 8, {"main_gpu": 0}, (["0"], 0, "main_gpu")),
        (PAIR, 8, {"main_gpu": 2}, (["0", "1"], 2, "outside")),
        (PAIR, 8, {"main_gpu": -1}, (["0", "1"], -1, "outside")),
        ([cuda("0", 10), rocm("r0", 20)], 8, {"main_gpu": 5}, (["r0"], 5, "outside")),
        # groups: one with a discrete GPU first, then the most available
        ([cuda("0", 10), rocm("r0", 30)], 40, {}, (["r0"], None, "group")),
        ([rocm("i", 90, **SHARED), cuda("d", 10)], 80, {}, (["d"], None, "group")),
        # explicit layers are no reason to place differently
        (PAIR, 8, {"num_gpu": 5}, (["1"], 0, "single")),
    ],
)
def test_R63_placement_table(
    devices: list[DeviceFacts], predicted: int, changes: dict[str, Any], expected: tuple[list[str], int | None, str]
) -> None:
    assert chosen(devices, predicted, **changes) == expected


def test_the_second_model_goes_to_the_other_gpu() -> None:
    gpus = [cuda("0", 24), cuda("1", 24)]
    assert chosen(gpus, 16)[0] == ["0"]
    assert chosen([cuda("0", 8), cuda("1", 24)], 16)[0] == ["1"]


def test_groups_by_library_in_order_of_appearance() -> None:
    devices = [
        rocm("r", 1),
        DeviceFacts(RAM, GB, GB, library="cpu"),
        cuda("0", 1),
        rocm("s", 1),
        cuda("1", 1, library="CUDA"),
    ]
    assert [[device.id for device in group] for group in group_by_library(devices)] == [["r", "s"], ["0", "1"]]


def test_ram_is_never_chosen() -> None:
    assert chosen([DeviceFacts(RAM, 99 * GB, 99 * GB), cuda("0", 10)], 8) == (["0"], None, "given")


def test_order_discrete_first_then_most_free() -> None:
    devices = [cuda("a", 1), cuda("i", 9, **SHARED), cuda("b", 2), cuda("c", 2)]
    ordered = sorted(devices, key=lambda device: order_key(device, device.reported_free))
    assert [device.id for device in ordered] == ["b", "c", "a", "i"]


def test_G18_the_main_gpu_alone_counts() -> None:
    assert used_gpus(PAIR, 1) == (PAIR[1],)
    for main_gpu in (None, -1, 2):
        assert used_gpus(PAIR, main_gpu) == PAIR


selections = st.tuples(
    device_lists,
    byte_counts,
    st.sampled_from([-1, 0, 5]),
    st.none() | st.integers(-1, 3),
    st.booleans(),
    st.none() | byte_counts,
)


def selection(devices: list[DeviceFacts], rest: tuple[Any, ...]) -> Selection:
    predicted, num_gpu, main_gpu, spread, system_free = rest
    return select(devices, predicted, num_gpu=num_gpu, main_gpu=main_gpu, spread=spread, system_free=system_free)


@given(selections)
def test_a_selection_is_one_library_and_says_what_it_is(drawn: tuple[Any, ...]) -> None:
    devices, *rest = drawn
    predicted, _, main_gpu, _, system_free = rest
    result = selection(devices, tuple(rest))
    assert set(result.gpus) <= set(devices)
    if result.kind == "given":
        assert result.gpus == tuple(devices)
        assert result.main_gpu == main_gpu
        return
    assert len({device.library.lower() for device in result.gpus}) == 1
    assert list(result.gpus) == [device for device in devices if device in result.gpus]
    if result.kind == "single":
        assert fits(predicted, available(result.gpus, system_free))
    if result.kind in ("single", "main_gpu"):
        assert len(result.gpus) == 1
        assert result.main_gpu == 0


@given(selections, st.randoms(use_true_random=False))
def test_the_order_of_devices_decides_only_ties(drawn: tuple[Any, ...], random: Random) -> None:
    devices, *rest = drawn
    _, _, main_gpu, _, system_free = rest
    if main_gpu is not None:
        return  # an index has a meaning only in the given order
    shuffled = list(devices)
    random.shuffle(shuffled)
    before, after = selection(devices, tuple(rest)), selection(shuffled, tuple(rest))
    assert before.kind == after.kind
    assert available(before.gpus, system_free) == available(after.gpus, system_free)
