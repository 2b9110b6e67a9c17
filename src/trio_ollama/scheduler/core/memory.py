"""Estimates of memory: what a model will take, what there is, and whether the one fits into the other.

All sizes are bytes and ints; nothing wraps below zero (I08, R62).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .values import DeviceFacts, ModelFacts

__all__ = ["available", "batch_surcharge", "fits", "predict_vram", "saturating_sub", "total_vram", "usable"]

_MIB: Final = 1 << 20

_FIT_PERCENT: Final = 80
"""Part of the free bytes a prediction may fill; the rest is for all that the prediction leaves out (G36)."""

_ELEMENT: Final = 2
"""Bytes of a cached key or value: always taken for f16, whatever the cache type."""


def saturating_sub(left: int, right: int) -> int:
    """`left - right`, but never below zero."""
    return max(0, left - right)


def predict_vram(model: ModelFacts, num_ctx: int, parallel: int) -> int:
    """Upstream's estimate: the whole file, and keys and values of `parallel` slots with `num_ctx` tokens each.

    Deliberately rough (no compute buffers, projectors, adapters, sliding windows): the fit rule's headroom covers it.
    """
    if model.train_context > 0:
        num_ctx = min(num_ctx, model.train_context)
    tokens = max(0, num_ctx) * max(1, parallel)
    per_token = 2 * model.layers * max(1, model.kv_heads) * model.head_dim * _ELEMENT
    return model.file_size + per_token * tokens


def batch_surcharge(batch: int, completion: bool) -> int:
    """What large batches take on top of the prediction; nothing for models that only embed."""
    if not completion or batch < 1024:
        return 0
    return 2048 * _MIB if batch >= 2048 else 768 * _MIB


def available(devices: Sequence[DeviceFacts], system_free: int | None) -> int:
    """Free bytes of the GPUs together; those that share the system's memory cannot offer more than is free there.

    R64, G11: 0 or None means that the system's figure is unknown, and then it limits nothing.
    """
    shared = sum(device.reported_free for device in devices if device.gpu and device.integrated)
    discrete = sum(device.reported_free for device in devices if device.gpu and not device.integrated)
    return discrete + (min(shared, system_free) if system_free else shared)


def fits(predicted: int, available: int) -> bool:
    """At most 80 % of what is available, in whole bytes; equality fits (G28)."""
    return predicted <= available * _FIT_PERCENT // 100


def usable(total: int, reported_free: int, reserved: int, overhead: int = 0) -> int:
    """Free bytes of a device that may be planned with (I07, R37).

    The driver's figure lags behind our own loads and shows foreign ones; our reservations show only ours. The smaller
    answer counts. Reservations beyond `total` leave nothing. The user's overhead comes off (a difference to upstream,
    which only logs it: G41).
    """
    return max(0, min(reported_free, total - reserved) - overhead)


def total_vram(devices: Sequence[DeviceFacts]) -> int:
    """What the default context is chosen by: all GPUs' memory without the user's overhead (R62: never negative)."""
    return sum(saturating_sub(device.total, device.overhead) for device in devices if device.gpu)
