"""Tokens per batch of the prefill: large is fast, small needs less memory and is cancelled sooner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .flash_attention import flash_attention
from .memory import batch_surcharge, fits
from .values import DeviceFacts, LaunchConfig, ModelFacts, Policy

__all__ = ["CPU_BATCH", "automatic_batch", "batch_for", "choose_batch", "cpu_batch", "embedding_batch"]

_GIB: Final = 1 << 30

CPU_BATCH: Final = 128
"""A cancelled prefill ends with its batch: on CPUs larger ones would keep the machine busy for seconds."""

_LEAST: Final = 8
"""Below, each batch is one more walk through all the weights, and not sooner over."""

_THREAD_SPEED: Final = 16 * 10**9
"""Bytes of weights times tokens that one thread gets through in a second: 98 MB at 160 tokens a second, measured."""

_DEFAULT, _MEDIUM, _LARGE, _CONSTRAINED = 512, 1024, 2048, 256


def choose_batch(
    model: ModelFacts,
    *,
    requested: int,
    automatic: bool,
    embeddings: bool,
    num_ctx: int,
    parallel: int,
    layers_on_cpu: bool,
    slow: int = 0,
    threads: int = 0,
    predicted: int,
    available: int,
    flash_attention: str,
    devices: Sequence[DeviceFacts],
) -> int:
    """The batch a runner is launched with.

    What a user chose is kept. Embeddings need the whole input in one batch. Otherwise at most 128 for a placement with
    layers on the CPU (**DIFF**, see `cpu_batch`), and upstream's choice for one that is all on GPUs. `predicted` and
    `available` are bytes on the chosen `devices`, without surcharge (G28); `slow` are bytes of weights on the CPU.
    """
    if not automatic:
        return requested
    if embeddings or model.pooled or not model.completion:
        return embedding_batch(num_ctx)
    if layers_on_cpu:
        return cpu_batch(slow, threads)
    return automatic_batch(num_ctx * max(1, parallel), predicted, available, flash_attention, devices)


def batch_for(
    model: ModelFacts,
    config: LaunchConfig,
    policy: Policy,
    gpus: Sequence[DeviceFacts],
    *,
    predicted: int,
    available: int,
    layers_on_cpu: bool,
    slow: int = 0,
) -> int:
    """`choose_batch` for a wanted configuration on these GPUs (none for the CPU)."""
    return choose_batch(
        model,
        requested=config.num_batch,
        automatic=config.num_batch_auto,
        embeddings=config.embeddings,
        num_ctx=config.num_ctx,
        parallel=config.parallel,
        layers_on_cpu=layers_on_cpu,
        slow=slow,
        threads=config.num_thread or policy.threads,
        predicted=predicted,
        available=available,
        flash_attention=flash_attention(policy.flash_attention, gpus),
        devices=gpus,
    )


def cpu_batch(slow: int, threads: int) -> int:
    """What the CPU gets through in about a second, so that a cancelled prefill is over after two (runner's 9.7).

    `slow`: bytes of weights; `threads`: that compute. Where one of them is unknown (0), or much is possible: 128. A
    mixture of experts is quicker than its size says; it pays with some speed for being cancelled sooner.
    """
    if not slow or not threads:
        return CPU_BATCH
    tokens = _THREAD_SPEED * threads // slow
    return max(_LEAST, min(CPU_BATCH, 1 << (tokens.bit_length() - 1) if tokens else 0))


def embedding_batch(num_ctx: int) -> int:
    """As many tokens as one input may have, up to 2048."""
    return min(_LARGE, num_ctx)


def automatic_batch(
    context: int, predicted: int, available: int, flash_attention: str, devices: Sequence[DeviceFacts]
) -> int:
    """Upstream's choice by the `context` of all slots together, smaller where memory is tight.

    Without flash attention CUDA's attention buffers grow with the batch, hence the small values there.
    """
    if flash_attention == "off" and any(_is_cuda(device) for device in devices):
        return _CONSTRAINED if context > 4096 and any(_is_small_cuda(device) for device in devices) else _DEFAULT
    if context > 32768 and _fits_batch(_LARGE, predicted, available, percent=60):
        return _LARGE
    if context > 4096 and _fits_batch(_MEDIUM, predicted, available, percent=75):
        return _MEDIUM
    return _DEFAULT


def _fits_batch(batch: int, predicted: int, available: int, *, percent: int) -> bool:
    """Whether prediction and surcharge fit, and the prediction alone leaves more than its usual headroom.

    Where one of the figures is unknown (0) there is nothing to be careful about.
    """
    if predicted == 0 or available == 0:
        return True
    return predicted <= available * percent // 100 and fits(predicted + batch_surcharge(batch, True), available)


def _is_cuda(device: DeviceFacts) -> bool:
    return device.library.lower() == "cuda"


def _is_small_cuda(device: DeviceFacts) -> bool:
    # G12: the total stands in for a free figure that is missing or larger than it.
    memory = device.reported_free
    if memory == 0 or 0 < device.total < memory:
        memory = device.total
    return _is_cuda(device) and 0 < memory <= 8 * _GIB
