"""What runners can really use (runner-and-memory 4.2): the build's own devices, matched with the driver's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from trio_ollama.hardware.contract import DeviceReport, RunnerDevice
from trio_ollama.hardware.usable import INTEGRATED, NOT_FOR_RUNNER, usable

GIB = 1 << 30


def gpu(number: int, **changes: object) -> DeviceReport:
    report = DeviceReport(
        f"GPU-{number}", "cuda", "NVIDIA H1", 80 * GIB, 70 * GIB, pci_id=f"0000:0{number}:00.0", driver=(12, 8)
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def found(name: str, pci: int | None = None, **changes: object) -> RunnerDevice:
    library = name.rstrip("0123456789").lower()
    pci_id = "" if pci is None else f"0000:0{pci}:00.0"
    device = RunnerDevice(name, library, "NVIDIA H1", 79 * GIB, 60 * GIB, pci_id)
    return replace(device, **changes)  # type: ignore[arg-type]


def ids(reports: Sequence[DeviceReport]) -> list[str]:
    return [report.id for report in reports if not report.trouble]


def troubles(reports: Sequence[DeviceReport]) -> dict[str, str]:
    return {report.id: report.trouble for report in reports if report.trouble}


def test_devices_are_matched_by_their_place() -> None:
    nvml = [gpu(1), gpu(2), gpu(3)]
    reports = usable(nvml, [found("CUDA0", 3), found("CUDA1", 1)], {})
    assert reports[:2] == (nvml[0], nvml[2])  # with the driver's own figures
    assert troubles(reports) == {"GPU-2": NOT_FOR_RUNNER}


def test_a_build_without_gpus_uses_none() -> None:
    reports = usable([gpu(1), gpu(2, trouble="lost")], [], {})
    assert ids(reports) == []
    assert troubles(reports) == {"GPU-1": NOT_FOR_RUNNER, "GPU-2": "lost"}


def test_without_places_position_name_and_size_decide() -> None:
    nvml = [gpu(1), gpu(2, name="NVIDIA A1", total=24 * GIB), gpu(3)]
    small = found("CUDA0", description="NVIDIA A1", total=23 * GIB)
    assert ids(usable(nvml, [small], {})) == ["GPU-2"]
    assert ids(usable(nvml, [found("CUDA0"), small, found("CUDA2")], {})) == ["GPU-1", "GPU-2", "GPU-3"]
    assert ids(usable(nvml, [found("CUDA0", total=40 * GIB)], {})) == []  # not the same GPU
    assert ids(usable(nvml, [found("CUDA0")], {})) == ["GPU-1"]
    shared = gpu(1, integrated=True, total=0, free=None)
    assert ids(usable([shared], [found("CUDA0", total=119 * GIB)], {})) == ["GPU-1"]


def test_one_part_of_a_gpu_speaks_for_all() -> None:
    """CUDA shows a process only one of them."""
    parts = [gpu(1, id=f"MIG-{name}", alone=True, total=10 * GIB) for name in "xy"]
    assert ids(usable(parts, [found("CUDA0", 1)], {})) == ["MIG-x", "MIG-y"]
    assert ids(usable(parts, [], {})) == []


def test_other_libraries_bring_their_own_figures() -> None:
    amd = found("ROCm1", library="rocm", description="AMD Radeon", total=16 * GIB, free=15 * GIB)
    [first, second] = usable([], [replace(amd, name="ROCm0"), amd], {"rocm": "5,GPU-abc"})
    assert (first.id, first.library, first.name, first.total, first.free) == (
        "rocm:5",
        "rocm",
        "AMD Radeon",
        16 * GIB,
        15 * GIB,
    )
    assert second.id == "rocm:GPU-abc"
    assert ids(usable([], [amd], {})) == ["rocm:0"]
    assert ids(usable([], [replace(amd, total=0, free=0)], {})) == []  # a pseudo device


@pytest.mark.parametrize("pci", [1, None])
def test_the_same_gpu_is_used_through_one_library(pci: int | None) -> None:
    vulkan = found("Vulkan0", pci, description="H1 (proprietary)")
    nvml = [gpu(1)]
    assert ids(usable(nvml, [vulkan, found("CUDA0", pci)], {})) == ["GPU-1"]
    reports = usable(nvml, [replace(vulkan, description="NVIDIA H1")], {})
    assert ids(reports) == ["vulkan:0"]
    assert troubles(reports) == {}
    assert (reports[0].total, reports[0].free) == (80 * GIB, 70 * GIB)  # the driver's figures are fresher


def test_two_equal_gpus_are_two() -> None:
    vulkan = [found(f"Vulkan{number}", description="AMD Radeon") for number in range(2)]
    assert ids(usable([], vulkan, {})) == ["vulkan:0", "vulkan:1"]
    rocm = [found(f"ROCm{number}", description="AMD Radeon") for number in range(2)]
    assert ids(usable([], [*vulkan, *rocm], {})) == ["rocm:0", "rocm:1"]


def test_cuda_without_nvml() -> None:
    """Jetson boards have no NVML: CUDA's numbers in PCI order, or what the user called them."""
    assert ids(usable([], [found("CUDA0")], {"cuda": None})) == ["cuda:0"]
    assert ids(usable([], [found("CUDA0")], {"cuda": "1"})) == ["cuda:1"]


def test_integrated_gpus_are_used_if_they_are_wanted() -> None:
    device = found("Vulkan0", integrated=True)
    assert troubles(usable([], [device], {})) == {"vulkan:0": INTEGRATED}
    [report] = usable([], [device], {}, integrated=True)
    assert (report.id, report.integrated) == ("vulkan:0", True)
