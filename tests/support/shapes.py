"""Shapes of models for tests of memory: a real one, a small one, and arbitrary ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from tests.support.policy_facts import config
from trio_ollama.scheduler.core.values import Shape

__all__ = ["LLAMA", "SMOLLM2", "configs_of_any_kind", "shapes"]

SMOLLM2: Final = Shape(
    weights=96_576_768,
    embedding=576,
    feed_forward=1536,
    heads=9,
    queries=576,
    keys=192,
    cached=30 * 2 * 192,
    vocabulary=49_152,
    merges=48_900,
    tied=True,
)
"""SmolLM2-135M: 30 layers, 3 of 9 heads have keys and values of their own."""

LLAMA: Final = Shape(
    weights=64 << 20,
    embedding=512,
    feed_forward=1024,
    heads=8,
    queries=512,
    keys=512,
    cached=24 * 2 * 512,
    vocabulary=1000,
)
"""24 layers with 8 heads of 64 each, as some of the measured buffers had."""

_counts = st.integers(0, 1 << 20)

_plain = st.builds(
    Shape,
    weights=st.integers(0, 1 << 42),
    embedding=_counts,
    feed_forward=_counts,
    heads=st.integers(0, 256),
    queries=_counts,
    keys=_counts,
    cached=_counts,
    vocabulary=_counts,
    merges=_counts,
    window=st.sampled_from([0, 1, 512, 4096]),
    window_cached=st.sampled_from([0, 512, 10_000]),
    state=_counts,
    inner=st.sampled_from([0, 1024]),
    token_embeddings=st.integers(0, 1 << 32),
    tied=st.booleans(),
    head=st.booleans(),
    attends=st.booleans(),
    projector=_counts,
    adapters=_counts,
)

shapes = _plain | st.builds(lambda shape, draft: replace(shape, draft=draft), _plain, _plain)

configs_of_any_kind = st.builds(
    config,
    num_gpu=st.sampled_from([-1, 0, 1, 20, 33, 99]),
    main_gpu=st.sampled_from([None, -1, 0, 1, 9]),
    num_ctx=st.sampled_from([0, 4, 300, 4096, 262144]),
    num_batch=st.sampled_from([1, 128, 2048]),
    num_batch_auto=st.booleans(),
    parallel=st.sampled_from([0, 1, 4]),
    embeddings=st.booleans(),
    draft=st.sampled_from([None, "/draft"]),
    draft_num_predict=st.sampled_from([0, 4]),
)
