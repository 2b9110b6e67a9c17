"""What the control knows of the machine, and where it puts a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from trio_ollama.hardware.contract import Hardware
from trio_ollama.scheduler import ModelFacts
from trio_ollama.scheduler.core.memory import fits, predict_vram

from .records import Loaded

__all__ = ["Gpu", "Machine", "explicitly_partial", "free_of", "place", "predicted", "tell_known_usage"]

REFRESH_LIMIT: Final = 3.0
"""Seconds; then the old figures count."""


@dataclass(slots=True)
class Gpu:
    id: str
    total: int
    free: int
    integrated: bool = False


class Machine:
    """Queries of the GPUs. `keeps`: a query that fails or takes long gives the figures of the last good one.

    Kinder than the original, which asks a runner of its own, if one is on a device, for the figures of its load.
    """

    def __init__(self, hardware: Hardware, *, keeps: bool) -> None:
        self._hardware = hardware
        self._keeps = keeps
        self._last: list[Gpu] = []

    async def gpus(self) -> list[Gpu]:
        """Fresh objects; empty if there is none, or nothing is known."""
        reports = None
        try:
            with trio.move_on_after(REFRESH_LIMIT if self._keeps else float("inf")):
                reports = await self._hardware.devices()
        except OSError:
            pass
        if reports is not None:
            self._last = [Gpu(one.id, one.total, one.free or 0, one.integrated) for one in reports]
        elif not self._keeps:
            return []
        return [Gpu(one.id, one.total, one.free, one.integrated) for one in self._last]

    async def system_free(self) -> int:
        """Bytes; 0 if it is not known."""
        memory = await self._hardware.memory()
        return 0 if memory is None else memory.free


def predicted(model: ModelFacts, num_ctx: int, parallel: int) -> int:
    return predict_vram(model, num_ctx, parallel)


def free_of(gpus: Iterable[Gpu], system_free: int) -> int:
    """GPUs that share the system's memory have no more than is free there, where that is known."""
    gpus = list(gpus)
    shared = sum(gpu.free for gpu in gpus if gpu.integrated)
    own = sum(gpu.free for gpu in gpus if not gpu.integrated)
    return own + (min(shared, system_free) if shared and system_free else shared)


def explicitly_partial(model: ModelFacts, num_gpu: int) -> bool:
    return 0 < num_gpu < model.layers + 1


def place(gpus: Sequence[Gpu], need: int, system_free: int, num_gpu: int, *, spread: bool) -> list[Gpu]:
    """The one that it fits on, with the most room; else all of them."""
    if len(gpus) <= 1 or num_gpu == 0:
        return list(gpus)
    if need > 0 and not spread:
        able = [gpu for gpu in gpus if fits(need, free_of([gpu], system_free))]
        if able:
            return [min(able, key=lambda gpu: (gpu.integrated, -free_of([gpu], system_free)))]
    return list(gpus)


def tell_known_usage(gpus: Sequence[Gpu], usage: dict[str, int]) -> None:
    """Lower the free figures, in place, to what is left beside the runners that are known."""
    for gpu in gpus:
        if gpu.id in usage:
            known = usage[gpu.id]
            gpu.free = 0 if known > gpu.total else min(gpu.free, gpu.total - known)


def add_usage(usage: dict[str, int], gpus: Sequence[Gpu], runner: Loaded) -> None:
    """Add what a runner was expected to take on each GPU."""
    assert runner.child is not None
    for gpu in gpus:
        usage[gpu.id] = usage.get(gpu.id, 0) + runner.child.need.get(gpu.id, 0)
