"""Estimates of memory (I07, I08, R37, R46, R57, R62, R64, G11, G28, G34)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policy_facts import GB, GIB, MIB, byte_counts, device_lists, gpu, model, models
from trio_ollama.scheduler.core.memory import (
    available,
    batch_surcharge,
    fits,
    predict_vram,
    saturating_sub,
    total_vram,
    usable,
)
from trio_ollama.scheduler.core.values import RAM, DeviceFacts, ModelFacts

PER_TOKEN = 131072  # bytes of the model that `model()` makes


@pytest.mark.parametrize(
    ("changes", "num_ctx", "parallel", "predicted"),
    [
        ({}, 4096, 1, GIB + 4096 * PER_TOKEN),
        ({}, 4096, 4, GIB + 4 * 4096 * PER_TOKEN),
        ({}, 4096, 0, GIB + 4096 * PER_TOKEN),
        ({"train_context": 2048}, 4096, 2, GIB + 2 * 2048 * PER_TOKEN),
        ({"train_context": 8192}, 4096, 1, GIB + 4096 * PER_TOKEN),
        ({"kv_heads": 0}, 4096, 1, GIB + 4096 * PER_TOKEN // 8),
        ({"head_dim": 0}, 4096, 1, GIB),
        ({"file_size": 0}, 1, 1, PER_TOKEN),
        ({}, -5, 1, GIB),
    ],
)
def test_prediction(changes: dict[str, int], num_ctx: int, parallel: int, predicted: int) -> None:
    assert predict_vram(model(**changes), num_ctx, parallel) == predicted


def test_R57_prediction_counts_the_contexts_of_all_slots() -> None:
    small = model(file_size=0, layers=2)  # 8 KiB for a token
    assert fits(predict_vram(small, 32768, 1), 900 * MIB)
    assert fits(predict_vram(small, 32768, 2), 900 * MIB)
    larger = model(file_size=0, layers=4)
    assert fits(predict_vram(larger, 32768, 1), 900 * MIB)
    assert not fits(predict_vram(larger, 32768, 2), 900 * MIB)


@pytest.mark.parametrize(
    ("predicted", "free", "fit"),
    [
        (8 * GB, 10 * GB, True),  # equality fits
        (8 * GB + 1, 10 * GB, False),
        (GIB, 20 * GIB, True),  # TestSchedLlamaServerFitsAlongside
        (GIB, 0, False),  # TestSchedLlamaServerEvictsWhenVRAMInsufficient
        (0, 0, True),
        (7, 9, True),  # 7.2 in whole bytes
    ],
)
def test_G28_the_80_percent_rule(predicted: int, free: int, fit: bool) -> None:
    assert fits(predicted, free) is fit


@pytest.mark.parametrize(
    ("batch", "completion", "bytes_"),
    [
        (128, True, 0),
        (1023, True, 0),
        (1024, True, 768 * MIB),
        (2047, True, 768 * MIB),
        (2048, True, 2 * GIB),
        (8192, True, 2 * GIB),
        (2048, False, 0),
    ],
)
def test_surcharge_of_large_batches(batch: int, completion: bool, bytes_: int) -> None:
    assert batch_surcharge(batch, completion) == bytes_


@pytest.mark.parametrize(
    ("discrete", "shared", "system", "expected"),
    [
        ([], [300], 80, 80),
        ([], [6], 12, 6),
        ([], [12], 6, 6),
        ([12], [], 6, 12),
        ([12], [10], 6, 18),
        ([], [20], 12, 12),
        ([], [4, 4], 6, 6),
        ([], [20], 0, 20),  # 0 is unknown (G11)
        ([3], [20], None, 23),
        ([], [], 5, 0),
        ([7], [0], 5, 7),
    ],
)
def test_R64_shared_memory_is_limited_by_the_systems(
    discrete: list[int], shared: list[int], system: int | None, expected: int
) -> None:
    devices = [gpu(f"d{free}", free * GIB) for free in discrete]
    devices += [gpu(f"s{index}", free * GIB, integrated=True) for index, free in enumerate(shared)]
    assert available(devices, None if system is None else system * GIB) == expected * GIB


def test_ram_is_no_gpu() -> None:
    ram = DeviceFacts(RAM, 64 * GIB, 60 * GIB)
    assert available([ram, gpu("a", GIB)], 60 * GIB) == GIB
    assert total_vram([ram, gpu("a", GIB)]) == GIB


@pytest.mark.parametrize(
    ("total", "reported", "reserved", "overhead", "expected"),
    [
        (1000, 900, 50 + 125, 0, 825),  # TestSchedUpdateFreeSpace
        (2000, 1900, 50 + 75, 0, 1875),
        (24 * GB, 24 * GB, 12 * GB, 0, 12 * GB),  # TestSchedulerTracksMultipleLoadedRunners
        (1000, 300, 100, 0, 300),  # others use it
        (1000, 900, 1001, 0, 0),  # more than there is: nothing, no wrap
        (1000, 900, 1000, 0, 0),
        (1000, 900, 0, 100, 800),
        (1000, 900, 850, 200, 0),
    ],
)
def test_R37_free_is_the_smaller_of_reported_and_known(
    total: int, reported: int, reserved: int, overhead: int, expected: int
) -> None:
    assert usable(total, reported, reserved, overhead) == expected


def test_R62_overhead_beyond_the_total_counts_as_nothing() -> None:
    assert total_vram([gpu("a", GIB, overhead=2 * GIB), gpu("b", 24 * GIB, overhead=GIB)]) == 23 * GIB


@given(models, st.integers(-1, 1 << 32), st.integers(-1, 64))
def test_predictions_are_whole_and_grow_with_the_context(facts: ModelFacts, num_ctx: int, parallel: int) -> None:
    predicted = predict_vram(facts, num_ctx, parallel)
    assert type(predicted) is int
    assert facts.file_size <= predicted <= predict_vram(facts, num_ctx + 1, parallel)


@given(device_lists, st.none() | byte_counts, byte_counts)
def test_I08_bytes_never_wrap(devices: list[DeviceFacts], system: int | None, amount: int) -> None:
    free = available(devices, system)
    assert type(free) is int
    assert 0 <= free <= sum(device.reported_free for device in devices)
    assert available(devices[::-1], system) == free
    for device in devices:
        left = usable(device.total, device.reported_free, amount, device.overhead)
        assert type(left) is int
        assert 0 <= left <= min(device.reported_free, device.total)
    assert 0 <= total_vram(devices) <= sum(device.total for device in devices)
    assert type(fits(amount, free)) is bool
    assert saturating_sub(free, amount) >= 0
