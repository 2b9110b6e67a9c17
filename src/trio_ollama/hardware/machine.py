"""The real machine behind the contract `Hardware`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import trio

from trio_ollama.hardware.contract import (
    DeviceReport,
    DevicesUnknownError,
    MemoryReport,
    RunnerBuild,
    RunnerDevice,
)
from trio_ollama.hardware.nvml import Nvml
from trio_ollama.hardware.system import SystemMemory
from trio_ollama.hardware.usable import usable
from trio_ollama.settings import Settings

__all__ = ["EXCLUDED", "Machine", "composed_filter", "may_have_gpus"]

logger = logging.getLogger(__name__)

PREPARE: Final = 30.0
"""Seconds for the runner's build to tell its devices at the start: the first contact with a large GPU takes some."""
NVML: Final = 3.0
"""Seconds for the driver, at the start."""
ASK: Final = 2.0
"""Seconds for the build to tell them again later; less than a query of the scheduler may take."""
STALE: Final = 1.0
"""Seconds after which the build's figures are asked for again, where no driver gives any."""
SLOWEST: Final = 60.0
"""Seconds between questions that fail, at last."""

EXCLUDED: Final = "excluded by OLLAMA_LLM_LIBRARY"

T = TypeVar("T")


def may_have_gpus(devices: Path = Path("/dev"), platform: str = sys.platform) -> bool:
    """False if there is no device file of any GPU. Only Linux has these."""
    if platform != "linux":
        return True
    files = ("kfd", "dxg", "nvidiactl", "nvmap")
    return any(devices.glob("dri/renderD*")) or any((devices / name).exists() for name in files)


class Machine:
    """Asks the driver and the kernel, each in a thread of its own, and the runner's build which GPUs it can use.

    A cancelled query leaves its thread behind until the driver answers. The limiters keep that to one thread for each
    kind of query: as long as one is stuck, later queries wait, and end with their caller's deadline.

    `build`: what runners are started from; None takes NVML's word for everything. `filters`: the user's own visibility
    variables by library; `library`: the only one to be used, if not empty.
    """

    def __init__(
        self,
        nvml: Nvml,
        system: SystemMemory,
        build: RunnerBuild | None = None,
        *,
        filters: Mapping[str, str | None] | None = None,
        library: str = "",
        integrated: bool = False,
        suspected: Callable[[], bool] = may_have_gpus,
    ) -> None:
        self._nvml = nvml
        self._system = system
        self._build = build
        self._filters = filters or {}
        self._library = library
        self._integrated = integrated
        self._suspected = suspected
        self._nvml_limiter = trio.CapacityLimiter(1)
        self._system_limiter = trio.CapacityLimiter(1)
        self._asking = trio.Lock()
        self._found: tuple[RunnerDevice, ...] | None = None
        """What the build told last; None: it has not, for the reason in `_unknown`."""
        self._unknown = ""
        self._asked = False
        self._stamp: object = None
        self._ask_at = 0.0
        self._pause = STALE

    @classmethod
    def from_settings(cls, settings: Settings, build: RunnerBuild | None = None) -> Machine:
        """The machine with the GPUs that the user left visible; none if the `cpu` backend is forced."""
        library = settings.llm_library.lower().partition("_")[0]
        if library == "cpu":
            return cls(Nvml(settings.cuda_visible_devices), SystemMemory(), library=library)
        return cls(
            Nvml(settings.cuda_visible_devices),
            SystemMemory(),
            build,
            filters={
                "cuda": settings.cuda_visible_devices,
                "rocm": composed_filter(settings.rocr_visible_devices, settings.hip_visible_devices),
                "vulkan": settings.vulkan_visible_devices,
            },
            library=library,
            integrated=settings.igpu_enable,
        )

    async def prepare(self) -> None:
        """Have the build tell its devices, before anybody plans with them; at most half a minute."""
        if self._build is None:
            return
        nvml, stamp = None, None
        with trio.move_on_after(NVML):
            nvml, stamp = await self._look()
        if nvml or self._suspected():
            self._stamp = stamp
            await self._ask(PREPARE)
        else:
            self._found = ()  # should a driver answer later, it is a question again

    async def devices(self) -> tuple[DeviceReport, ...] | None:
        """As the contract says; GPUs that share the system's memory report its figures."""
        nvml, stamp = await self._look()
        if nvml is None:
            return None
        devices = nvml if self._build is None else await self._usable(nvml, stamp)
        if self._library:
            devices = tuple(
                device if device.trouble or device.library == self._library else replace(device, trouble=EXCLUDED)
                for device in devices
            )
        devices = tuple(sorted(devices, key=lambda device: bool(device.trouble)))
        if not any(device.total == 0 and not device.trouble for device in devices):
            return devices
        memory = await self.memory()
        if memory is None:
            return None
        return tuple(
            device if device.total or device.trouble else replace(device, total=memory.total, free=memory.free)
            for device in devices
        )

    async def memory(self) -> MemoryReport | None:
        return await _in_thread(self._system.read, self._system_limiter)

    async def processes(self, device: str) -> Mapping[int, int | None] | None:
        return await _in_thread(lambda: self._nvml.processes(device), self._nvml_limiter)

    async def _look(self) -> tuple[tuple[DeviceReport, ...] | None, object]:
        build = self._build
        return await _in_thread(
            lambda: (self._nvml.query(), build.stamp() if build is not None else None), self._nvml_limiter
        )

    async def _usable(self, nvml: tuple[DeviceReport, ...], stamp: object) -> tuple[DeviceReport, ...]:
        """What of it the build can use, and what else; asks the build again if there is a reason."""
        if stamp != self._stamp:  # another build has taken its place
            self._stamp, self._asked, self._ask_at, self._pause = stamp, False, 0.0, STALE
        known = {device.pci_id for device in nvml}
        late = bool(nvml) and not self._asked  # a driver that answers late, or a build that did not tell
        stale = any(device.pci_id not in known for device in self._found or () if device.library != "cuda" or not nvml)
        if (late or stale) and trio.current_time() >= self._ask_at:
            await self._ask(ASK)
        if self._found is None:
            reason = f"the runner's build did not tell its devices: {self._unknown}"
            return tuple(device if device.trouble else replace(device, trouble=reason) for device in nvml)
        return usable(nvml, self._found, self._filters, integrated=self._integrated)

    async def _ask(self, limit: float) -> None:
        """Failures leave what was known, and the next question waits twice as long."""
        assert self._build is not None
        async with self._asking:
            try:
                with trio.fail_after(limit):
                    self._found = await self._build.devices()
            except (DevicesUnknownError, trio.TooSlowError) as error:
                self._unknown = str(error) or f"no answer within {limit:g} s"
                self._pause = min(2 * self._pause, SLOWEST)
                logger.warning("the runner's build did not tell its devices: %s", self._unknown)
            else:
                self._asked, self._pause = True, STALE
            self._ask_at = trio.current_time() + self._pause


def composed_filter(rocr: str | None, hip: str | None) -> str | None:
    """HIP's filter counts within what ROCr's has left."""
    if hip is None or rocr is None:
        return rocr if hip is None else hip
    left = rocr.split(",")
    return ",".join(
        left[int(token)] for token in hip.split(",") if token.strip().isdecimal() and int(token) < len(left)
    )


async def _in_thread(query: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    return await trio.to_thread.run_sync(query, abandon_on_cancel=True, limiter=limiter)
