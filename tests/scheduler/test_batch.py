"""Batch sizes: upstream's table, and where ours differs (R49, G12, G28, decisions 4 and 5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policy_facts import GIB, MIB, byte_counts, device_lists, gpu, model, models
from trio_ollama.scheduler.core.batch import automatic_batch, choose_batch, cpu_batch
from trio_ollama.scheduler.core.values import DeviceFacts, ModelFacts

BIG = [gpu("a", 24 * GIB)]


@pytest.mark.parametrize(
    ("context", "predicted", "free", "batch"),
    [
        (4096, 8 * GIB, 14 * GIB, 512),
        (32768, 8 * GIB, 14 * GIB, 1024),
        (131072, 8 * GIB, 14 * GIB, 2048),
        (131072, 9 * GIB, 14 * GIB, 1024),
        (131072, 8 * GIB, 11 * GIB, 1024),
        (32768, 8500 * MIB, 11 * GIB, 512),
        # Not in upstream's test: the borders.
        (4097, 0, 14 * GIB, 1024),  # unknown figures
        (32769, 8 * GIB, 0, 2048),
        (32768, 0, 0, 1024),
        (131072, 13 * GIB, 14 * GIB, 512),  # does not fit at all
        (131072, 6000, 10000, 512),  # the surcharge alone is too much
        (131072, 6 * GIB, 10 * GIB, 2048),  # 60 % and 2 GiB below 80 %, exactly
        (131072, 6 * GIB + 1, 10 * GIB, 1024),
        (131072, 60 * GIB, 100 * GIB, 2048),  # the headroom alone decides
        (131072, 60 * GIB + 1, 100 * GIB, 1024),
        (131072, 75 * GIB, 100 * GIB, 1024),
        (131072, 75 * GIB + 1, 100 * GIB, 512),
    ],
)
def test_automatic_batch_with_flash_attention(context: int, predicted: int, free: int, batch: int) -> None:
    for mode in ("auto", "on"):
        assert automatic_batch(context, predicted, free, mode, BIG) == batch


@pytest.mark.parametrize(
    ("context", "devices", "batch"),
    [
        (131072, BIG, 512),
        (131072, [gpu("a", 6 * GIB)], 256),
        (4096, [gpu("a", 6 * GIB)], 512),
        (4097, [gpu("a", 8 * GIB)], 256),
        (4097, [gpu("a", 8 * GIB + 1)], 512),
        (4097, [*BIG, gpu("b", 6 * GIB)], 256),
        # G12: which figure counts
        (4097, [gpu("a", 0, total=6 * GIB)], 256),
        (4097, [gpu("a", 24 * GIB, total=6 * GIB)], 256),
        (4097, [gpu("a", 6 * GIB, total=24 * GIB)], 256),
        (4097, [gpu("a", 0, total=0)], 512),
        # G19: spelling; and no CUDA device, no rule
        (131072, [gpu("a", 6 * GIB, library="CUDA")], 256),
        (131072, [gpu("a", 6 * GIB, library="rocm")], 2048),
        (131072, [*BIG, gpu("b", 6 * GIB, library="rocm")], 512),
    ],
)
def test_G12_automatic_batch_without_flash_attention(context: int, devices: list[DeviceFacts], batch: int) -> None:
    assert automatic_batch(context, GIB, 24 * GIB, "off", devices) == batch


def choose(facts: ModelFacts | None = None, **changes: Any) -> int:
    values: dict[str, Any] = {
        "requested": 512,
        "automatic": True,
        "embeddings": False,
        "num_ctx": 131072,
        "parallel": 1,
        "layers_on_cpu": False,
        "predicted": 8 * GIB,
        "available": 14 * GIB,
        "flash_attention": "auto",
        "devices": BIG,
    }
    return choose_batch(facts or model(), **{**values, **changes})


def test_a_chosen_batch_is_kept_wherever_the_layers_are() -> None:
    assert choose(automatic=False, requested=700) == 700
    assert choose(automatic=False, requested=700, layers_on_cpu=True) == 700
    assert choose(automatic=False, requested=700, embeddings=True) == 700
    assert choose(model(completion=False), automatic=False, requested=700) == 700


def test_layers_on_the_cpu_get_small_batches() -> None:
    assert choose(layers_on_cpu=True) == 128
    assert choose() == 2048


@pytest.mark.parametrize(
    ("gigabytes", "threads", "batch"),
    [
        (0.1, 2, 128),
        (1, 2, 32),
        (5, 16, 32),
        (5, 64, 128),
        (40, 16, 8),  # a batch of one walks through all the weights as well
        (40, 64, 16),
        (0, 16, 128),  # unknown
        (40, 0, 128),
    ],
)
def test_a_batch_on_the_cpu_takes_about_a_second(gigabytes: float, threads: int, batch: int) -> None:
    """By the measured speed of a thread; never more than 128."""
    assert cpu_batch(int(gigabytes * 10**9), threads) == batch
    assert choose(layers_on_cpu=True, slow=int(gigabytes * 10**9), threads=threads) == batch


def test_the_table_goes_by_the_context_of_all_slots() -> None:
    assert choose(num_ctx=4096, parallel=1) == 512
    assert choose(num_ctx=4096, parallel=2) == 1024
    assert choose(num_ctx=4096, parallel=9) == 2048


def test_R49_the_reduced_context_gets_a_smaller_batch() -> None:
    assert choose(num_ctx=131072) == 2048
    assert choose(num_ctx=32768) == 1024


@pytest.mark.parametrize(("num_ctx", "batch"), [(512, 512), (2048, 2048), (8192, 2048)])
def test_an_input_to_embed_fits_into_one_batch(num_ctx: int, batch: int) -> None:
    for on_cpu in (False, True):
        assert choose(model(completion=False), num_ctx=num_ctx, layers_on_cpu=on_cpu) == batch
        assert choose(model(pooled=True), num_ctx=num_ctx, layers_on_cpu=on_cpu) == batch
        assert choose(embeddings=True, num_ctx=num_ctx, layers_on_cpu=on_cpu) == batch


@given(
    models,
    st.integers(4, 1 << 20),
    st.integers(1, 8),
    st.booleans(),
    byte_counts,
    byte_counts,
    st.sampled_from(["on", "off", "auto"]),
    device_lists,
)
def test_automatic_batches_are_of_the_table(
    facts: ModelFacts,
    num_ctx: int,
    parallel: int,
    on_cpu: bool,
    predicted: int,
    free: int,
    mode: str,
    devices: list[DeviceFacts],
) -> None:
    values: dict[str, Any] = {
        "num_ctx": num_ctx,
        "parallel": parallel,
        "layers_on_cpu": on_cpu,
        "predicted": predicted,
        "available": free,
        "flash_attention": mode,
    }
    batch = choose(facts, devices=devices, **values)
    assert type(batch) is int
    assert batch in (128, 256, 512, 1024, 2048, min(2048, num_ctx))
    assert batch == choose(facts, devices=devices[::-1], **values)
