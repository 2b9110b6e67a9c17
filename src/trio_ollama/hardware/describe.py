"""The machine in words: what there is, what is not used, why, and what can be done about it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from trio_ollama.hardware.contract import DeviceReport, MachineReport
from trio_ollama.hardware.machine import EXCLUDED
from trio_ollama.hardware.usable import INTEGRATED, NOT_FOR_RUNNER
from trio_ollama.hardware.visible import HIDDEN

__all__ = ["machine_lines", "remedy"]

WISHED: Final = frozenset({HIDDEN, EXCLUDED, INTEGRATED})
"""Troubles that nobody needs to be warned of."""

BUILDS: Final = "https://xorbitsai.github.io/xllamacpp/whl"
"""Index of the builds of the runner's package, by library."""


def machine_lines(report: MachineReport) -> Iterator[tuple[int, str]]:
    """(logging level, text): a line for each GPU, usable ones first, discrete before integrated; then system memory."""
    if report.gpus is None:
        yield logging.WARNING, "the GPU driver does not answer: until it does, models are loaded into system memory"
    for gpu in sorted(report.gpus or (), key=lambda gpu: (bool(gpu.trouble), gpu.integrated, -(gpu.free or 0))):
        text = f"{gpu.id}: {_description(gpu)}"
        if not gpu.trouble:
            yield logging.INFO, text
        else:
            level = logging.INFO if gpu.trouble in WISHED else logging.WARNING
            yield level, f"{text} is not used: {gpu.trouble}{remedy(gpu)}"
    memory = report.memory
    if memory is None:
        yield logging.WARNING, "the amount of system memory could not be read: it limits nothing until it can"
    else:
        limited = f" (limited by the control group {memory.limited_by})" if memory.limited_by else ""
        yield (
            logging.INFO,
            f"system memory: {_size(memory.total)}{limited}, {_size(memory.free)} free, {_size(memory.swap_free)} swap",
        )


def remedy(gpu: DeviceReport) -> str:
    """What follows the trouble, if there is something to do about it: the build that can use this GPU."""
    if gpu.trouble != NOT_FOR_RUNNER:
        return ""
    if (0, 0) < gpu.driver < (12, 0):
        return (
            f". Its driver is made for CUDA {gpu.driver[0]}.{gpu.driver[1]}; ready-made builds need one for 12 or later"
        )
    build = "cu132" if gpu.driver >= (13, 2) else "cu128"
    return (
        f". A build that can: pip install xllamacpp --force-reinstall --index-url {BUILDS}/{build}"
        " - or a llama-server of your own in TRIO_OLLAMA_LLAMA_SERVER"
    )


def _description(gpu: DeviceReport) -> str:
    facts = [gpu.library]
    if gpu.compute != (0, 0):
        facts.append("compute {}.{}".format(*gpu.compute))
    if gpu.driver_version:
        facts.append(f"driver {gpu.driver_version}")
    if gpu.driver != (0, 0):
        facts.append("CUDA {}.{}".format(*gpu.driver))
    if gpu.pci_id:
        facts.append(f"PCI {gpu.pci_id}")
    if gpu.integrated:
        facts.append("shares the system's memory")
    figures = f"{_size(gpu.total)}, {'an unknown part of it' if gpu.free is None else _size(gpu.free)} free"
    return f"{gpu.name or 'unknown GPU'} ({', '.join(facts)})" + (f", {figures}" if gpu.total else "")


def _size(amount: int) -> str:
    return f"{amount / (1 << 30):.1f} GiB"
