"""Whether weights are mapped from the file or read into memory, where the request leaves it open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .memory import fits
from .placement import used_gpus
from .values import DeviceFacts

__all__ = ["default_mmap"]

_LEAST_HEADROOM: Final = 8 * 10**9


def default_mmap(
    requested: bool | None,
    *,
    platform: str,
    num_gpu: int,
    main_gpu: int | None,
    layers: int,
    file_size: int,
    gpus: Sequence[DeviceFacts],
    predicted: int,
    available: int,
    system_total: int,
    system_free: int,
    mapped: int,
) -> tuple[bool | None, str]:
    """The mapping to launch with, and why it was switched off; the reason is empty where nothing was decided.

    `gpus`, `main_gpu`, `predicted` and `available` are the placement's; `mapped` is the size of the files that other
    runners have mapped; `platform` as in `sys.platform`. Zero stands for "unknown" in all byte counts (G18).
    None leaves the choice to llama.cpp, which maps.
    """
    if requested is not None:
        return requested, ""
    libraries = {gpu.library.lower() for gpu in gpus}  # G19
    if num_gpu == 0 or libraries <= {"cpu"}:
        return False, "cpu"
    if platform.startswith("win") and "cuda" in libraries:
        return False, "windows_cuda"
    if "metal" in libraries:
        explicit = 0 < num_gpu < layers + 1
        automatic = num_gpu < 0 and 0 < available < predicted
        if explicit or automatic:
            return False, "metal_partial_offload"
    if platform == "linux" and _host_pressure(
        used_gpus(gpus, main_gpu), file_size, predicted, available, system_total, system_free, mapped
    ):
        return False, "host_memory_pressure"
    return None, ""


def _host_pressure(
    gpus: Sequence[DeviceFacts],
    file_size: int,
    predicted: int,
    available: int,
    system_total: int,
    system_free: int,
    mapped: int,
) -> bool:
    """The page cache has no room for the file, although all of the model goes to the GPUs.

    Where VRAM is tight the mapping stays: parts of the model live on the host then, and would need real memory.
    """
    if not (file_size and system_free and predicted and available):
        return False
    if any(gpu.integrated for gpu in gpus) or not fits(predicted, available):
        return False
    return system_free < file_size + mapped + max(_LEAST_HEADROOM, system_total // 10)
