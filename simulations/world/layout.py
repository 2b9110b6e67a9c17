"""Where a child puts a model, as llama.cpp does: as many layers on its GPUs as it was told, or as fit; the rest in RAM.

It knows nothing of what the scheduler has reserved. What it reports is compared with that (I07).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trio_ollama.hardware.contract import CPU
from trio_ollama.runners.contract import LaunchSpec

from .hardware import GIB

__all__ = ["LAYERS", "layout"]

LAYERS: Final = 32
"""Of every model; the output is one more."""
MARGIN: Final = GIB
"""What it leaves free on each GPU where it chooses the layers."""


def layout(spec: LaunchSpec, size: int, free: Callable[[str], int]) -> dict[str, int]:
    """Bytes by device of a model of `size` bytes; `free`: what the driver says of a GPU at this moment."""
    gpus = spec.visible_devices or ()
    if not gpus or spec.gpu_layers == 0:
        return {CPU: size}
    wanted = size
    if 0 < spec.gpu_layers <= LAYERS:
        wanted = size * spec.gpu_layers // (LAYERS + 1)
    room = {id_: max(0, free(id_) - MARGIN) for id_ in gpus}
    together = sum(room.values())
    if spec.gpu_layers < 0:
        wanted = min(wanted, together)
    shares: dict[str, int] = {}
    before = passed = 0
    for number, id_ in enumerate(gpus, 1):
        passed += room[id_]
        until = wanted * passed // together if together else wanted * number // len(gpus)
        shares[id_], before = until - before, until
    return {**shares, CPU: size - wanted} if wanted < size else shares
