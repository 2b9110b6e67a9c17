"""Short ways to write the inputs of scheduling policies, and strategies that make arbitrary ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from trio_ollama.scheduler.core.values import DeviceFacts, LaunchConfig, ModelFacts

__all__ = ["GB", "GIB", "MIB", "byte_counts", "config", "configs", "device_lists", "gpu", "model", "models"]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
GB: Final = 10**9


def model(**changes: Any) -> ModelFacts:
    """A completion model; 131072 bytes of keys and values per token."""
    facts = ModelFacts("/m", "m", "/m", file_size=GIB, architecture="llama", layers=32, kv_heads=8, head_dim=128)
    return replace(facts, **changes)


def gpu(id_: str, free: int, **changes: Any) -> DeviceFacts:
    return replace(DeviceFacts(id_, total=free, reported_free=free, compute=(9, 0), driver=(12, 8)), **changes)


def config(**changes: Any) -> LaunchConfig:
    """An automatic configuration whose training context is unknown."""
    plain = LaunchConfig(
        num_ctx=4096,
        num_ctx_auto=True,
        num_batch=512,
        num_batch_auto=True,
        num_gpu=-1,
        main_gpu=None,
        use_mmap=None,
        use_mmap_auto=False,
        num_thread=0,
        draft_num_predict=0,
        context_shift=True,
        embeddings=False,
        parallel=1,
        train_context=0,
    )
    return replace(plain, **changes)


byte_counts = st.integers(0, (1 << 64) - 1) | st.sampled_from([0, 1, GIB - 1, GIB, 8 * GIB, (1 << 64) - 1])

models = st.builds(
    model,
    file_size=byte_counts,
    layers=st.integers(0, 200),
    kv_heads=st.integers(0, 128),
    head_dim=st.integers(0, 512),
    train_context=st.sampled_from([0, 512, 4096, 131072]),
    completion=st.booleans(),
    pooled=st.booleans(),
)

devices = st.builds(
    DeviceFacts,
    id=st.text("abcdef", min_size=1, max_size=6),
    total=byte_counts,
    reported_free=byte_counts,
    overhead=byte_counts,
    library=st.sampled_from(["cuda", "CUDA", "rocm", "vulkan"]),
    integrated=st.booleans(),
    compute=st.tuples(st.integers(0, 12), st.integers(0, 9)),
)

device_lists = st.lists(devices, max_size=5, unique_by=lambda device: device.id)

configs = st.builds(
    config,
    num_ctx=st.sampled_from([512, 2048, 4096, 32768, 65536]),
    num_ctx_auto=st.booleans(),
    num_batch=st.sampled_from([128, 512, 2048]),
    num_batch_auto=st.booleans(),
    num_gpu=st.integers(-2, 3),
    main_gpu=st.sampled_from([None, 0, 1]),
    use_mmap=st.sampled_from([None, False, True]),
    num_thread=st.integers(0, 1),
    context_shift=st.booleans(),
    embeddings=st.booleans(),
    train_context=st.sampled_from([0, 4096]),
    adapters=st.sampled_from([(), ("a",)]),
)
