"""The machine in words, and the way to a build that can use a GPU."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from trio_ollama.hardware.contract import DeviceReport, MachineReport, MemoryReport
from trio_ollama.hardware.describe import machine_lines, remedy
from trio_ollama.hardware.usable import NOT_FOR_RUNNER
from trio_ollama.hardware.visible import HIDDEN

GIB = 1 << 30
GPU = DeviceReport(
    id="GPU-a",
    library="cuda",
    name="NVIDIA H1",
    total=80 * GIB,
    free=70 * GIB,
    pci_id="0000:01:00.0",
    compute=(9, 0),
    driver=(12, 8),
    driver_version="570.1",
)
MEMORY = MemoryReport(total=64 * GIB, free=60 * GIB, swap_free=2 * GIB, limited_by="/docker/x")


def test_every_device_has_a_line_best_first() -> None:
    gpus = (
        replace(GPU, id="GPU-b", free=None, integrated=True),
        GPU,
        replace(GPU, id="GPU-c", trouble=HIDDEN),
        replace(GPU, id="GPU-d", trouble="lost"),
    )
    assert list(machine_lines(MachineReport(gpus, MEMORY))) == [
        (
            logging.INFO,
            "GPU-a: NVIDIA H1 (cuda, compute 9.0, driver 570.1, CUDA 12.8, PCI 0000:01:00.0), 80.0 GiB, 70.0 GiB free",
        ),
        (
            logging.INFO,
            "GPU-b: NVIDIA H1 (cuda, compute 9.0, driver 570.1, CUDA 12.8, PCI 0000:01:00.0, shares the system's memory"
            "), 80.0 GiB, an unknown part of it free",
        ),
        (
            logging.INFO,
            "GPU-c: NVIDIA H1 (cuda, compute 9.0, driver 570.1, CUDA 12.8, PCI 0000:01:00.0), 80.0 GiB, 70.0 GiB free"
            " is not used: hidden by CUDA_VISIBLE_DEVICES",
        ),
        (
            logging.WARNING,
            "GPU-d: NVIDIA H1 (cuda, compute 9.0, driver 570.1, CUDA 12.8, PCI 0000:01:00.0), 80.0 GiB, 70.0 GiB free"
            " is not used: lost",
        ),
        (
            logging.INFO,
            "system memory: 64.0 GiB (limited by the control group /docker/x), 60.0 GiB free, 2.0 GiB swap",
        ),
    ]


def test_what_is_unknown_is_said() -> None:
    lines = list(machine_lines(MachineReport(None, None)))
    assert [level for level, _ in lines] == [logging.WARNING] * 2
    assert "does not answer" in lines[0][1]


@pytest.mark.parametrize(
    ("driver", "words"), [((12, 2), "/cu128 "), ((13, 0), "/cu128 "), ((13, 2), "/cu132 "), ((11, 8), "CUDA 11.8")]
)
def test_a_gpu_that_the_build_cannot_use_is_named_with_the_way_out(driver: tuple[int, int], words: str) -> None:
    gpu = replace(GPU, driver=driver, trouble=NOT_FOR_RUNNER)
    assert words in remedy(gpu)
    [(level, line), _] = machine_lines(MachineReport((gpu,), MEMORY))
    assert level == logging.WARNING
    assert f"is not used: {NOT_FOR_RUNNER}{remedy(gpu)}" in line
    assert remedy(GPU) == ""
