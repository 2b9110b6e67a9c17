"""The devices that runners can really use: what their own build has found, with the driver's figures where it has any.

A driver may show a GPU for which the build was not made; planning with it would put models on the CPU unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from trio_ollama.hardware.contract import DeviceReport, RunnerDevice

__all__ = ["usable"]

PREFERENCE: Final = ("cuda", "rocm", "metal", "vulkan")
"""Of libraries that offer the same GPU, the first is taken; unknown ones come last."""

TOLERANCE: Final = 16
"""CUDA's figure of a GPU's size is smaller than NVML's by a few percent: 1/16 is still the same GPU."""

NOT_FOR_RUNNER: Final = "the runner's build cannot use it"
INTEGRATED: Final = "integrated GPU: used only with OLLAMA_IGPU_ENABLE=1"


def usable(
    nvml: Sequence[DeviceReport],
    found: Sequence[RunnerDevice],
    filters: Mapping[str, str | None],
    *,
    integrated: bool = False,
) -> tuple[DeviceReport, ...]:
    """NVML's devices and others the runner has found; those that cannot be used have `trouble` and come last.

    `nvml` is in the order of the user's filter, as is `found`, with CUDA's numbers in PCI order; `filters` are the
    user's own filters by library (None: none); `integrated`: GPUs without memory of their own are wanted, too.
    """
    found = sorted(found, key=lambda device: _preference(device.library))
    cuda = [device for device in found if device.library == "cuda"]
    fine = [device for device in nvml if not device.trouble]
    matched = _matched(fine, cuda)
    taken: list[DeviceReport] = []
    others: list[DeviceReport] = []
    for device, report in _foreign(nvml, found, filters):
        rival = next((other for other in (*matched, *taken) if _same(other, device)), None)
        if rival is not None or device.total == 0 or (device.library == "cuda" and nvml):
            continue  # a second way to a GPU that is in use already, or no GPU at all
        if report.integrated and device.library != "cuda" and not integrated:
            others.append(replace(report, trouble=INTEGRATED))
        else:
            taken.append(report)
    used = {report.pci_id for report in taken if report.pci_id}
    for report in nvml:
        if report.trouble:
            others.append(report)
        elif report not in matched and report.pci_id not in used:
            others.append(replace(report, trouble=NOT_FOR_RUNNER))
    return (*matched, *taken, *others)


def _preference(library: str) -> int:
    return PREFERENCE.index(library) if library in PREFERENCE else len(PREFERENCE)


def _matched(nvml: Sequence[DeviceReport], cuda: Sequence[RunnerDevice]) -> list[DeviceReport]:
    """By PCI id; where the build does not tell it, by position, name and size."""
    free = list(cuda)
    matched: list[DeviceReport] = []
    for index, report in enumerate(nvml):
        if report.alone:
            # CUDA shows one process only one part of a GPU: that one says that the others can be used as well.
            if cuda:
                matched.append(report)
            continue
        at_index = [cuda[index]] if index < len(cuda) and cuda[index] in free else []
        same = next((device for device in (*at_index, *free) if _is(report, device)), None)
        if same is not None:
            free.remove(same)
            matched.append(report)
    return matched


def _is(report: DeviceReport, device: RunnerDevice) -> bool:
    if report.pci_id and device.pci_id:
        return report.pci_id == device.pci_id
    return _alike(report.name, device.description) and (
        report.integrated or abs(report.total - device.total) <= report.total // TOLERANCE
    )


def _same(report: DeviceReport, device: RunnerDevice) -> bool:
    """The same GPU, seen through another library."""
    if report.pci_id and device.pci_id:
        return report.pci_id == device.pci_id
    return report.library != device.library and _alike(report.name, device.description)


def _alike(left: str, right: str) -> bool:
    """Vulkan's drivers add their own name to a GPU's; with an NVIDIA GPU some leave the maker out."""
    left, right = (name.lower().removeprefix("nvidia ").strip() for name in (left, right))
    return bool(left) and bool(right) and (left.startswith(right) or right.startswith(left))


def _foreign(
    nvml: Sequence[DeviceReport], found: Sequence[RunnerDevice], filters: Mapping[str, str | None]
) -> Iterator[tuple[RunnerDevice, DeviceReport]]:
    """Every device of the runner as a report of its own, under the name that its library's filter knows."""
    numbers: dict[str, int] = {}
    left = {device.library: [report for report in nvml if not report.trouble] for device in found}
    for device in found:
        number = numbers[device.library] = numbers.get(device.library, -1) + 1
        tokens = [token.strip() for token in (filters.get(device.library) or "").split(",") if token.strip()]
        token = tokens[number] if number < len(tokens) else str(number)
        known = next((report for report in left[device.library] if _is(report, device)), None)
        if known is not None:
            left[device.library].remove(known)
        yield (
            device,
            DeviceReport(
                id=f"{device.library}:{token}",
                library=device.library,
                name=device.description,
                # The driver's figures are fresh, the runner's as old as the last question.
                total=known.total if known is not None and known.total else device.total,
                free=known.free if known is not None and known.total else device.free,
                integrated=device.integrated,
                pci_id=device.pci_id or (known.pci_id if known is not None else ""),
            ),
        )
