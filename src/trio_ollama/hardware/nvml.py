"""NVIDIA GPUs, asked through NVML. Synchronous and possibly slow (a wedged driver blocks): call it in a thread.

One broken GPU takes no other away: what it does not tell is unknown, and the GPU is in the report with its `trouble`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from trio_ollama.hardware.contract import DeviceReport
from trio_ollama.hardware.visible import filtered

__all__ = ["LOST", "Nvml"]

LOST: Final = "lost: the driver cannot reach it any more"
SILENT: Final = "the driver does not answer for it"
UNCUT: Final = "in MIG mode, without an instance that could be used"

MOST: Final = 256
"""More GPUs, and"""
LARGEST: Final = 1 << 50
"""more bytes of one, are garbage."""

T = TypeVar("T")


def _import_pynvml() -> Any:
    import pynvml

    return pynvml


class Nvml:
    """A session with the driver: opened by the first query, kept, opened anew after an error.

    Not safe for concurrent use: one query at a time. `library` gives the module `pynvml` or raises ImportError;
    `visible` is the user's CUDA_VISIBLE_DEVICES; `session_of` gives the session leader of a pid or raises OSError.
    NVIDIA_VISIBLE_DEVICES is for the container's runtime: the driver shows what that has left.
    """

    def __init__(
        self,
        visible: str | None = None,
        *,
        library: Callable[[], Any] = _import_pynvml,
        session_of: Callable[[int], int] = os.getsid,
    ) -> None:
        self._visible = visible
        self._library = library
        self._session_of = session_of
        self._open = False
        self._known: dict[str, DeviceReport] = {}
        """The last good report of each GPU ever seen."""
        self._handles: dict[str, Any] = {}
        self._at: dict[int, str] = {}
        """The id of the GPU that was last at an index, for one that does not even tell its name any more."""
        self._index: dict[str, int] = {}
        """Where each GPU was first seen."""

    def query(self) -> tuple[DeviceReport, ...] | None:
        """The GPUs in PCI order, or those of the user's filter in its order, then the ones that are not to be used.

        Empty if the machine has no NVIDIA driver. None if the driver failed, or shows no GPU any more (I19: a driver
        that is being updated is no reason to run on the CPU). A GPU whose memory is the system's has `integrated` set,
        `total` 0 and `free` None: the caller knows the system's figures.
        """
        try:
            nvml = self._library()
        except ImportError:
            return ()
        try:
            seen = self._look(nvml)
            if any(device.trouble == LOST for device in seen):
                # Handles of an old session do not survive a reset: only a new session's answer counts.
                self._close(nvml)
                seen = self._look(nvml)
        except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
            seen = ()
        except _failures(nvml):
            self._close(nvml)
            return None
        if not seen and self._known:
            self._close(nvml)
            return None
        if seen and all(device.trouble == SILENT for device in seen):
            self._close(nvml)  # this is about the driver, not about a GPU
            return None
        everything = {device.id: device for device in (*seen, *self._missing(seen))}
        # Indices of the user's filter keep their meaning when a GPU falls out of the count.
        return filtered(sorted(everything.values(), key=lambda device: self._index[device.id]), self._visible)

    def processes(self, id_: str) -> Mapping[int, int | None] | None:
        """See `Hardware.processes`."""
        handle = self._handles.get(id_)
        if handle is None or not self._open:
            return None
        nvml = self._library()
        found: dict[int, int | None] = {}
        try:
            # A process with a context for both kinds is in both lists, with the same figure.
            for ask in (nvml.nvmlDeviceGetGraphicsRunningProcesses, nvml.nvmlDeviceGetComputeRunningProcesses):
                found |= {int(process.pid): process.usedGpuMemory for process in ask(handle)}
        except _failures(nvml):
            return None
        held: dict[int, int | None] = {}
        for pid, amount in found.items():
            leader = self._leader(pid)
            before = held.get(leader, 0)
            held[leader] = None if amount is None or before is None else before + int(amount)
        return held

    def _leader(self, pid: int) -> int:
        try:
            return self._session_of(pid)
        except OSError:  # it is gone, or of another namespace
            return pid

    def _look(self, nvml: Any) -> tuple[DeviceReport, ...]:
        if not self._open:
            nvml.nvmlInit()
            self._open = True
        version = nvml.nvmlSystemGetCudaDriverVersion_v2()
        blank = DeviceReport(
            id="",
            library="cuda",
            name="",
            total=0,
            free=None,
            driver=(version // 1000, version % 1000 // 10),
            driver_version=_try(nvml, lambda: _text(nvml.nvmlSystemGetDriverVersion()), ""),
        )
        self._handles.clear()
        devices: list[DeviceReport] = []
        count = nvml.nvmlDeviceGetCount()
        if not 0 <= count <= MOST:
            raise ValueError(f"{count} GPUs")
        for index in range(count):
            for device in self._at_index(nvml, index, blank):
                self._index.setdefault(device.id, index)
                devices.append(device)
        return tuple(sorted(devices, key=lambda device: not device.trouble))

    def _missing(self, seen: tuple[DeviceReport, ...]) -> Iterator[DeviceReport]:
        """GPUs that were there before and are not counted any more (R65)."""
        ids = {device.id for device in seen}
        places = {device.pci_id for device in seen}
        for id_, device in self._known.items():
            if id_ not in ids and device.pci_id not in places:  # else it was cut into parts, or put together again
                yield replace(device, free=None, trouble=LOST)

    def _at_index(self, nvml: Any, index: int, blank: DeviceReport) -> Iterator[DeviceReport]:
        """The GPU at an index, its parts if it is cut into MIG devices, nothing if it belongs to somebody else."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            id_ = _text(nvml.nvmlDeviceGetUUID(handle))
            if not id_.startswith("GPU-"):
                raise ValueError(f"no UUID: {id_!r}")
            self._at[index] = id_
        except nvml.NVMLError_NoPermission:
            return  # counted, but not given to our container
        except _failures(nvml) as error:
            id_ = self._at.get(index, f"GPU at index {index}")
            yield replace(self._known.get(id_, blank), id=id_, free=None, trouble=_trouble(nvml, error))
            return
        try:
            whole = self._facts(nvml, handle, id_, blank)
            if not _try(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0):
                yield self._with_memory(nvml, handle, whole)
            else:
                parts = list(self._parts(nvml, handle, whole))
                yield from parts or [replace(whole, trouble=UNCUT)]
        except nvml.NVMLError_GpuIsLost as error:
            yield replace(self._known.get(id_, blank), id=id_, free=None, trouble=_trouble(nvml, error))

    def _parts(self, nvml: Any, handle: Any, whole: DeviceReport) -> Iterator[DeviceReport]:
        """MIG devices have memory and a UUID of their own; the rest is their GPU's."""
        for index in range(_try(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)):
            try:
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                id_ = _text(nvml.nvmlDeviceGetUUID(part))
                instance = nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetComputeInstanceId(part)
            except nvml.NVMLError_GpuIsLost:
                raise
            except _failures(nvml):
                continue  # fewer than the most there can be, or not ours
            alias = f"MIG-{whole.id}/{instance[0]}/{instance[1]}"
            named = replace(whole, id=id_, name=_name(nvml, part, whole.name), alias=alias, alone=True)
            yield self._with_memory(nvml, part, named)

    def _facts(self, nvml: Any, handle: Any, id_: str, blank: DeviceReport) -> DeviceReport:
        """What never changes; what the driver does not tell this time is as before (I19)."""
        before = self._known.get(id_, blank)
        domain, _, place = _try(nvml, lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower(), "").partition(":")
        major, minor = _try(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle), before.compute)
        return replace(
            blank,
            id=id_,
            name=_name(nvml, handle, before.name),
            # NVML's domain has eight digits, everyone else's four.
            pci_id=f"{domain[-4:]}:{place}" if place else before.pci_id,
            compute=(int(major), int(minor)),
        )

    def _with_memory(self, nvml: Any, handle: Any, device: DeviceReport) -> DeviceReport:
        """With its figures, or what is known of them: the size from before, nothing about what is free."""
        before = self._known.get(device.id)
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            total, free = int(memory.total), int(memory.free)
        except nvml.NVMLError_NotSupported:
            device = replace(device, integrated=True)  # so do GPUs that share the system's memory answer
        except nvml.NVMLError_GpuIsLost:
            raise
        except _failures(nvml):
            total, free = 0, 0
        if not device.integrated:
            if 0 <= free <= total and 0 < total < LARGEST:
                device = replace(device, total=total, free=free)
            elif before is None:
                return replace(device, trouble=SILENT)
            else:
                device = replace(device, total=before.total, integrated=before.integrated)
        self._handles[device.id] = handle
        self._known[device.id] = device
        return device

    def _close(self, nvml: Any) -> None:
        self._handles.clear()
        if self._open:
            self._open = False
            with suppress(nvml.NVMLError):  # the session may be broken; the next query opens another one anyway
                nvml.nvmlShutdown()


def _failures(nvml: Any) -> tuple[type[Exception], ...]:
    """What a driver's error is; and what the binding makes of garbage."""
    return nvml.NVMLError, ValueError, TypeError, OverflowError


def _try(nvml: Any, ask: Callable[[], T], otherwise: T) -> T:
    """An answer that one can do without; a lost GPU is not passed over."""
    try:
        return ask()
    except nvml.NVMLError_GpuIsLost:
        raise
    except _failures(nvml):
        return otherwise


def _name(nvml: Any, handle: Any, otherwise: str) -> str:
    return _try(nvml, lambda: _text(nvml.nvmlDeviceGetName(handle)), otherwise)


def _trouble(nvml: Any, error: Exception) -> str:
    if isinstance(error, nvml.NVMLError_GpuIsLost):
        return LOST
    return SILENT


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
