"""The real machine behind the contract `Hardware`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import trio

from trio_ollama.hardware.contract import DeviceReport, MemoryReport
from trio_ollama.hardware.nvml import Nvml
from trio_ollama.hardware.system import SystemMemory
from trio_ollama.settings import Settings

__all__ = ["Machine"]

T = TypeVar("T")


class Machine:
    """Asks the driver and the kernel, each in a thread of its own.

    A cancelled query leaves its thread behind until the driver answers. The limiters keep that to one thread for each
    kind of query: as long as one is stuck, later queries wait, and end with their caller's deadline.
    """

    def __init__(self, nvml: Nvml, system: SystemMemory) -> None:
        self._nvml = nvml
        self._system = system
        self._nvml_limiter = trio.CapacityLimiter(1)
        self._system_limiter = trio.CapacityLimiter(1)

    @classmethod
    def from_settings(cls, settings: Settings) -> Machine:
        """The machine with the GPUs that the user left visible; none if the `cpu` backend is forced."""
        forced_cpu = settings.llm_library.lower().startswith("cpu")
        return cls(Nvml("" if forced_cpu else settings.cuda_visible_devices), SystemMemory())

    async def devices(self) -> tuple[DeviceReport, ...] | None:
        """As the contract says; GPUs that share the system's memory report its figures."""
        devices = await _in_thread(self._nvml.query, self._nvml_limiter)
        if devices is None or not any(device.total == 0 for device in devices):
            return devices
        memory = await self.memory()
        if memory is None:
            return None
        return tuple(
            device if device.total else replace(device, total=memory.total, free=memory.free) for device in devices
        )

    async def memory(self) -> MemoryReport | None:
        return await _in_thread(self._system.read, self._system_limiter)


async def _in_thread(query: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    return await trio.to_thread.run_sync(query, abandon_on_cancel=True, limiter=limiter)
