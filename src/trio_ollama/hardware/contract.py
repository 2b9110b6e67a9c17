"""What the scheduler may ask of the machine. Failures and partial answers are *unknown*, never zero (I19)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = [
    "CPU",
    "DeviceReport",
    "DevicesUnknownError",
    "Hardware",
    "MachineReport",
    "MemoryReport",
    "RunnerBuild",
    "RunnerDevice",
]

CPU = "cpu"
"""Id of the device that stands for system memory."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One GPU as it was last seen. Sizes in bytes; `free` is None when nobody would say."""

    id: str
    """The UUID (`GPU-...`, `MIG-...`), stable over reboots and order changes; else `library:token`, with what the
    library's own filter calls the device."""
    library: str
    """`cuda`, `rocm`, `vulkan`, `metal`, ..."""
    name: str
    total: int
    free: int | None
    integrated: bool = False
    """Its memory is the system's."""
    pci_id: str = ""
    """`0000:01:00.0`; a part of a GPU has its GPU's."""
    compute: tuple[int, int] = (0, 0)
    driver: tuple[int, int] = (0, 0)
    """CUDA version of the driver."""
    driver_version: str = ""
    """Version of the kernel driver, such as `550.54.14`."""
    alias: str = ""
    """The older form of a MIG device's UUID, `MIG-GPU-.../instance/compute`."""
    alone: bool = False
    """One process cannot use it together with another device (parts of a GPU, as CUDA has it)."""
    trouble: str = ""
    """Why nothing may be placed on it, for people; empty for a GPU that can be used."""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """System memory, with the limits of the process's own control groups applied. Sizes in bytes."""

    total: int
    free: int
    swap_free: int = 0
    limited_by: str = field(default="", compare=False)
    """The control group that leaves less than the machine has, for people."""


@dataclass(frozen=True, slots=True)
class MachineReport:
    """All that was last seen, also what is not used; for people."""

    gpus: tuple[DeviceReport, ...] | None
    """None: no query has succeeded yet."""
    memory: MemoryReport | None


class Hardware(Protocol):
    """Queries of the machine. They may block for a while: the caller sets a deadline and keeps its last good values."""

    async def devices(self) -> tuple[DeviceReport, ...] | None:
        """The GPUs, in the driver's order, those with `trouble` last; None if the query failed."""
        ...

    async def memory(self) -> MemoryReport | None:
        """System memory; None if it could not be read."""
        ...

    async def processes(self, device: str) -> Mapping[int, int | None] | None:
        """Bytes that processes hold on a GPU, by pid; None for bytes that the driver will not tell.

        A session's processes count for its leader, which every runner is. None if nobody can say who is there.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunnerDevice:
    """A GPU that the runner's own build has found. Sizes in bytes."""

    name: str
    """Such as `CUDA0`: the library and a number."""
    library: str
    description: str
    total: int
    free: int
    pci_id: str = ""
    integrated: bool = False


class DevicesUnknownError(Exception):
    """The runner's build did not tell its devices; the text says why."""


class RunnerBuild(Protocol):
    """What runners are started from, as far as it matters here: which devices it can use."""

    def stamp(self) -> object:
        """Equal as long as the build is the same. Short, but blocking: for a thread."""
        ...

    async def devices(self) -> tuple[RunnerDevice, ...]:
        """Ask it, under a bound of its own; raises `DevicesUnknownError`."""
        ...
