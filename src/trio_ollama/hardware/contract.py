"""What the scheduler may ask of the machine. Failures and partial answers are *unknown*, never zero (I19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["CPU", "DeviceReport", "Hardware", "MemoryReport"]

CPU = "cpu"
"""Id of the device that stands for system memory."""


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One GPU as the driver reports it. Sizes in bytes; `free` is None when the driver would not say."""

    id: str
    """The UUID (`GPU-...`), stable over reboots and order changes."""
    library: str
    """`cuda`, `rocm`, `vulkan` or `metal`."""
    name: str
    total: int
    free: int | None
    integrated: bool = False
    pci_id: str = ""
    compute: tuple[int, int] = (0, 0)
    driver: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """System memory, with the limits of the process's own control group applied. Sizes in bytes."""

    total: int
    free: int
    swap_free: int = 0


class Hardware(Protocol):
    """Queries of the machine. Both may block for a while: the caller sets a deadline and keeps its last good values."""

    async def devices(self) -> tuple[DeviceReport, ...] | None:
        """The GPUs that runners can use, in the driver's order; None if the query failed."""
        ...

    async def memory(self) -> MemoryReport | None:
        """System memory; None if it could not be read."""
        ...
