"""The better estimate against real children: small ones here, a table of larger ones in tests/benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gguf_shapes import write_shape
from tests.support.measured_child import Case, expected_buffers, expected_growth, idle_child, measure
from tests.support.smollm2 import PACKAGE, find_smollm2
from trio_ollama.runners.llama_server import runner_factory

MIB = 1 << 20

SLACK = 8 * MIB
"""Beside 10 %: models are small here, and an allocator's arenas, threads' stacks and the libraries of a build differ
from machine to machine by that much, whatever the model."""

MAKERS: dict[str, Callable[[Path], Case]] = {
    "grouped heads": lambda path: Case(
        "", write_shape(path, layers=8, heads=8, kv_heads=2, vocabulary=2000), 4096, num_batch=128
    ),
    "a head each, two slots": lambda path: Case("", write_shape(path, vocabulary=2000), 1024, parallel=2),
    "large vocabulary": lambda path: Case("", write_shape(path, embedding=128, vocabulary=150_000, merges=True), 512),
    "quantized cache": lambda path: Case(
        "", write_shape(path, layers=8, vocabulary=2000), 8192, num_batch=128, cache_type="q8_0"
    ),
    "long context": lambda path: Case("", write_shape(path, vocabulary=2000, context=32768), 16384, num_batch=128),
    "sliding window": lambda path: Case(
        "",
        write_shape(
            path, architecture="gemma3", layers=12, window=512, vocabulary=2000, tied=True, heads=4, kv_heads=2
        ),
        8192,
    ),
    "recurrent": lambda path: Case(
        "", write_shape(path, architecture="mamba", heads=0, state=16, vocabulary=2000), parallel=2
    ),
    "experts": lambda path: Case("", write_shape(path, experts=4, vocabulary=2000)),
    "embeddings": lambda path: Case("", write_shape(path, vocabulary=10_000), 512, embeddings=True),
}


@pytest.mark.real
@pytest.mark.parametrize("kind", MAKERS)
async def test_the_footprint_is_what_a_child_takes(kind: str, tmp_path: Path) -> None:
    await check(MAKERS[kind](tmp_path / "model.gguf"), tmp_path)


@pytest.mark.real
@pytest.mark.smollm2
@pytest.mark.parametrize(("num_ctx", "parallel", "cache_type"), [(2048, 1, ""), (4096, 2, "q8_0")])
async def test_the_footprint_of_a_real_model(num_ctx: int, parallel: int, cache_type: str, tmp_path: Path) -> None:
    path = find_smollm2()
    if path is None:
        pytest.skip(f"{PACKAGE} is not installed")
    await check(Case("", path, num_ctx, parallel, num_batch=128, cache_type=cache_type), tmp_path)


async def check(case: Case, folder: Path) -> None:
    """Growth of resident memory over that of an idle child; and, nearly exact, what llama.cpp says it allocated."""
    with runner_factory("embedded", root=folder) as factory:
        measured = await measure(factory, case)
    growth = measured.working - idle_child()
    assert expected_growth(case) == pytest.approx(growth, rel=0.10, abs=SLACK)
    assert expected_buffers(case) == pytest.approx(measured.buffers, rel=0.03, abs=MIB / 2)
