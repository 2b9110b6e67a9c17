"""Upstream's choice of GPUs for a load: one that holds the model, else the best group of one library.

Free bytes are `DeviceFacts.reported_free`; callers put in what is usable. Ties go to the earlier device, so the order
of the list is part of the input: sort it by something stable (G28).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .memory import available, fits
from .values import DeviceFacts

__all__ = ["Selection", "group_by_library", "order_key", "select", "used_gpus"]


@dataclass(frozen=True, slots=True)
class Selection:
    """The GPUs a runner will see, in order, and the `main_gpu` it is launched with."""

    gpus: tuple[DeviceFacts, ...]
    main_gpu: int | None
    kind: str
    """`given` (nothing to choose), `main_gpu` (the user's), `single`, `group`, or `outside`: a group, because the
    user's `main_gpu` is in none; worth a warning."""


def group_by_library(devices: Sequence[DeviceFacts]) -> tuple[tuple[DeviceFacts, ...], ...]:
    """GPUs that one runner can use together, in order of first appearance; RAM is in no group."""
    groups: dict[str, list[DeviceFacts]] = {}
    for device in devices:
        if device.gpu:
            groups.setdefault(device.id if device.alone else device.library.lower(), []).append(device)
    return tuple(map(tuple, groups.values()))


def order_key(device: DeviceFacts, available: int) -> tuple[bool, int]:
    """Sort key, best first: discrete before integrated, then most available bytes (R63)."""
    return (device.integrated, -available)


def used_gpus(gpus: Sequence[DeviceFacts], main_gpu: int | None) -> Sequence[DeviceFacts]:
    """The devices whose memory counts: the main GPU if there is one with that index, else all."""
    if main_gpu is not None and 0 <= main_gpu < len(gpus):
        return (gpus[main_gpu],)
    return gpus


def select(
    devices: Sequence[DeviceFacts],
    predicted: int,
    *,
    num_gpu: int,
    main_gpu: int | None,
    spread: bool,
    system_free: int | None,
) -> Selection:
    """The placement of a model of `predicted` bytes, without batch surcharge (G28).

    With `num_gpu` 0, or fewer than two GPUs, there is nothing to choose. A `main_gpu` counts within each library's
    group (G10) and wins over `spread`. A single GPU is launched as number 0 of a list of one.
    """
    gpus = tuple(device for device in devices if device.gpu)
    if len(gpus) <= 1 or num_gpu == 0:
        return Selection(gpus, main_gpu, "given")
    groups = group_by_library(gpus)
    if main_gpu is not None:
        candidates = [group[main_gpu] for group in groups if 0 <= main_gpu < len(group)]
        if not candidates:
            return Selection(_best_group(groups, system_free), main_gpu, "outside")
        return Selection((_best(candidates, system_free),), 0, "main_gpu")
    if not spread and predicted > 0:
        candidates = [gpu for group in groups for gpu in group if fits(predicted, available((gpu,), system_free))]
        if candidates:
            return Selection((_best(candidates, system_free),), 0, "single")
    return Selection(_best_group(groups, system_free), None, "group")


def _best(gpus: Sequence[DeviceFacts], system_free: int | None) -> DeviceFacts:
    # `min` keeps the first of equals.
    return min(gpus, key=lambda gpu: order_key(gpu, available((gpu,), system_free)))


def _best_group(groups: Sequence[tuple[DeviceFacts, ...]], system_free: int | None) -> tuple[DeviceFacts, ...]:
    return min(groups, key=lambda group: (all(gpu.integrated for gpu in group), -available(group, system_free)))
