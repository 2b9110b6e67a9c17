"""NVIDIA GPUs, asked through NVML. Synchronous and possibly slow (a wedged driver blocks): call it in a thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from trio_ollama.hardware.contract import DeviceReport

__all__ = ["Nvml", "select_visible"]


def _import_pynvml() -> Any:
    import pynvml

    return pynvml


class Nvml:
    """A session with the driver: opened by the first query, kept, opened anew after an error.

    Not safe for concurrent use: one query at a time. `library` gives the module `pynvml` or raises ImportError;
    `visible` is the user's CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, visible: str | None = None, *, library: Callable[[], Any] = _import_pynvml) -> None:
        self._visible = visible
        self._library = library
        self._open = False
        self._seen_devices = False

    def query(self) -> tuple[DeviceReport, ...] | None:
        """The visible GPUs, in PCI order or the order of the user's filter.

        Empty if the machine has no NVIDIA driver. None if the driver failed on anything, or shows no GPU any more
        (I19: a driver that is being updated is no reason to run on the CPU). A GPU whose memory is the system's has
        `integrated` set, `total` 0 and `free` None: the caller knows the system's figures.
        """
        try:
            nvml = self._library()
        except ImportError:
            return ()
        try:
            if not self._open:
                nvml.nvmlInit()
                self._open = True
            devices = _devices(nvml)
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
            devices = ()
        except nvml.NVMLError:
            self._close(nvml)
            return None
        if not devices and self._seen_devices:
            self._close(nvml)
            return None
        self._seen_devices = bool(devices)
        return select_visible(devices, self._visible)

    def _close(self, nvml: Any) -> None:
        if self._open:
            self._open = False
            with suppress(nvml.NVMLError):  # the session may be broken; the next query opens another one anyway
                nvml.nvmlShutdown()


def _devices(nvml: Any) -> tuple[DeviceReport, ...]:
    version = nvml.nvmlSystemGetCudaDriverVersion_v2()
    driver = (version // 1000, version % 1000 // 10)
    devices = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError_NoPermission:
            continue  # counted, but not given to our container
        devices.append(_device(nvml, handle, driver))
    return tuple(devices)


def _device(nvml: Any, handle: Any, driver: tuple[int, int]) -> DeviceReport:
    integrated, total, free = False, 0, None
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, free = int(memory.total), int(memory.free)
    except nvml.NVMLError_NotSupported:
        integrated = True  # so do GPUs that share the system's memory answer
    domain, _, place = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower().partition(":")
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return DeviceReport(
        id=_text(nvml.nvmlDeviceGetUUID(handle)),
        library="cuda",
        name=_text(nvml.nvmlDeviceGetName(handle)),
        total=total,
        free=free,
        integrated=integrated,
        pci_id=f"{domain[-4:]}:{place}",  # NVML's domain has eight digits, everyone else's four
        compute=(int(major), int(minor)),
        driver=driver,
    )


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def select_visible(devices: Sequence[DeviceReport], visible: str | None) -> tuple[DeviceReport, ...]:
    """The devices that CUDA_VISIBLE_DEVICES leaves, in its order; all if it is None.

    Its tokens are indices or (the beginnings of) UUIDs. As in CUDA, a token that names no device, or one that was
    named before, hides all that come after it, so empty and `-1` hide everything.
    Indices count in PCI order: runners are given UUIDs, so CUDA's own order does not matter.
    """
    if visible is None:
        return tuple(devices)
    chosen: list[DeviceReport] = []
    for token in visible.split(","):
        device = _named(devices, token.strip())
        if device is None or device in chosen:
            break
        chosen.append(device)
    return tuple(chosen)


def _named(devices: Sequence[DeviceReport], token: str) -> DeviceReport | None:
    if re.fullmatch("[0-9]{1,4}", token):
        return devices[int(token)] if int(token) < len(devices) else None
    if not token.upper().startswith("GPU-"):
        return None
    named = [device for device in devices if device.id.upper().startswith(token.upper())]
    return named[0] if len(named) == 1 else None
