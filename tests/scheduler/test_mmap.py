"""When weights are not mapped (runner-and-memory 3.7, R66, G18, G19, G25)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.policy_facts import GB, gpu
from trio_ollama.scheduler.core.mmap import default_mmap
from trio_ollama.scheduler.core.values import DeviceFacts

CUDA = gpu("a", 80 * GB)
OTHER = gpu("b", 80 * GB)
INTEGRATED = gpu("i", 80 * GB, integrated=True)
METAL = gpu("m", 80 * GB, library="Metal", integrated=True)
CPU_LIBRARY = gpu("c", 80 * GB, library="CPU")

MAPPED = (None, "")
CPU = (False, "cpu")
WINDOWS = (False, "windows_cuda")
PARTIAL = (False, "metal_partial_offload")
PRESSURE = (False, "host_memory_pressure")


def decide(gpus: list[DeviceFacts], **changes: Any) -> tuple[bool | None, str]:
    """Upstream's test of host pressure: 20 GB of model and 25 GB mapped need 8 GB more, 50 are free."""
    values: dict[str, Any] = {
        "platform": "linux",
        "num_gpu": -1,
        "main_gpu": None,
        "layers": 32,
        "file_size": 20 * GB,
        "predicted": 20 * GB,
        "available": 80 * GB,
        "system_total": 100 * GB,
        "system_free": 50 * GB,
        "mapped": 25 * GB,
    }
    requested = changes.pop("requested", None)
    return default_mmap(requested, gpus=gpus, **{**values, **changes})


@pytest.mark.parametrize("requested", [True, False])
@pytest.mark.parametrize("gpus", [[], [CUDA], [METAL]])
def test_the_users_word_counts(requested: bool, gpus: list[DeviceFacts]) -> None:
    assert decide(gpus, requested=requested) == (requested, "")


@pytest.mark.parametrize(
    ("gpus", "changes", "expected"),
    [
        ([], {}, CPU),
        ([CUDA], {"num_gpu": 0}, CPU),
        ([CPU_LIBRARY], {}, CPU),
        ([CPU_LIBRARY, CUDA], {"mapped": 0}, MAPPED),
        ([CUDA], {"platform": "win32"}, WINDOWS),
        ([gpu("r", GB, library="rocm")], {"platform": "win32"}, MAPPED),
        ([CUDA], {"platform": "darwin"}, MAPPED),
    ],
)
def test_R66_mapping_by_platform_and_device(
    gpus: list[DeviceFacts], changes: dict[str, Any], expected: tuple[bool | None, str]
) -> None:
    assert decide(gpus, **changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_gpu": 10}, PARTIAL),
        ({"num_gpu": 32}, PARTIAL),
        ({"num_gpu": 33}, MAPPED),
        ({"num_gpu": 10, "layers": 0}, MAPPED),
        ({"predicted": 81 * GB}, PARTIAL),
        ({"predicted": 80 * GB}, MAPPED),
        ({"predicted": 81 * GB, "available": 0}, MAPPED),
        ({"predicted": 0}, MAPPED),
    ],
)
def test_G18_metal_with_part_of_the_layers(changes: dict[str, Any], expected: tuple[bool | None, str]) -> None:
    assert decide([METAL], platform="darwin", **changes) == expected


@pytest.mark.parametrize(
    ("gpus", "changes", "expected"),
    [
        ([CUDA], {}, PRESSURE),
        ([CUDA], {"system_free": 55 * GB}, MAPPED),  # 20 + 25 + 10 % of 100
        ([CUDA], {"system_free": 55 * GB - 1}, PRESSURE),
        ([CUDA], {"system_total": 0, "system_free": 53 * GB}, MAPPED),  # 8 GB at least
        ([CUDA], {"system_total": 0, "system_free": 53 * GB - 1}, PRESSURE),
        ([CUDA], {"predicted": 70 * GB}, MAPPED),  # VRAM is tight
        ([CUDA], {"predicted": 64 * GB}, PRESSURE),
        ([CUDA], {"predicted": 64 * GB + 1}, MAPPED),
        ([CUDA], {"predicted": 0}, MAPPED),
        ([CUDA], {"available": 0}, MAPPED),
        ([CUDA], {"file_size": 0}, MAPPED),
        ([CUDA], {"system_free": 0}, MAPPED),
        ([CUDA], {"num_gpu": 3}, PRESSURE),
        ([INTEGRATED], {}, MAPPED),
        ([CUDA, INTEGRATED], {}, MAPPED),
        ([CUDA, OTHER], {}, PRESSURE),
        ([CUDA, INTEGRATED], {"main_gpu": 0}, PRESSURE),
        ([CUDA, INTEGRATED], {"main_gpu": 1}, MAPPED),
        ([CUDA, INTEGRATED], {"main_gpu": 2}, MAPPED),
    ],
)
def test_G18_host_memory_pressure(
    gpus: list[DeviceFacts], changes: dict[str, Any], expected: tuple[bool | None, str]
) -> None:
    assert decide(gpus, **changes) == expected


def test_G25_a_retry_decides_anew_from_what_the_user_gave() -> None:
    off, _ = decide([CUDA])
    assert off is False
    assert decide([CUDA], mapped=0) == MAPPED
