"""Fresh figures of the machine for the planner: queried under a deadline, with the last good values kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import trio

from trio_ollama.hardware.contract import CPU, DeviceReport, Hardware, MachineReport, MemoryReport

from .core.values import DeviceFacts

__all__ = ["HardwareFacts"]

RETRY: Final = 0.25
"""Seconds."""
DOUBT: Final = 1.0
"""Seconds for which nobody believes that a GPU cannot be used any more."""

log = logging.getLogger("trio_ollama.scheduler")

UNKNOWN_MEMORY = MemoryReport(total=1 << 62, free=1 << 62)
"""Used until system memory could be read once: unknown is not zero (I19)."""


class HardwareFacts:
    """Last good values of the machine. `overhead`: bytes kept free on each GPU (OLLAMA_GPU_OVERHEAD)."""

    def __init__(self, hardware: Hardware, *, overhead: int, deadline: float) -> None:
        self._hardware = hardware
        self._overhead = overhead
        self._deadline = deadline
        self._gpus: tuple[DeviceReport, ...] | None = None
        """Also those that are not used. None: no query has succeeded yet, so nobody knows whether there are any."""
        self._memory: MemoryReport | None = None
        self._asked = 0
        self._answered = 0

    async def query(self) -> tuple[DeviceFacts, ...]:
        """Ask the machine; whatever does not answer in time, or not wholly, keeps its last good value (R65)."""
        self._asked = asked = self._asked + 1
        memory, gpus = None, None
        try:
            with trio.move_on_after(self._deadline):
                memory = await self._hardware.memory()
                gpus = await self._hardware.devices()
                begun = trio.current_time()
                while self._in_doubt(gpus, trio.current_time() - begun):
                    await trio.sleep(RETRY)
                    gpus = await self._hardware.devices() or gpus
        except Exception:
            log.exception("a query of the hardware failed")
        if asked > self._answered:  # else a later query was quicker
            self._answered = asked
            self._memory = memory or self._memory
            if gpus is not None:
                known = {gpu.id: gpu for gpu in self._gpus or ()}
                if self._gpus is not None:
                    _tell(gpus, known)
                self._gpus = tuple(_with_free(gpu, known.get(gpu.id)) for gpu in gpus)
        return self.facts()

    def _in_doubt(self, gpus: Sequence[DeviceReport] | None, seconds: float) -> bool:
        """Whether to look again, so many `seconds` after the first look: one bad answer moves no model (R65)."""
        if gpus is None:
            # Without a last good answer, giving up would put the next load on the CPU for good.
            return self._gpus is None
        # Without a GPU that could be used until now, a load might be split, or go to the CPU.
        usable = {gpu.id for gpu in gpus if not gpu.trouble}
        return seconds < DOUBT and any(gpu.id not in usable for gpu in self._gpus or () if not gpu.trouble)

    async def processes(self, device: str) -> Mapping[int, int | None] | None:
        """Who holds what on a GPU, see `Hardware.processes`; None if there is no answer in time."""
        try:
            with trio.move_on_after(self._deadline):
                return await self._hardware.processes(device)
        except Exception:
            log.exception("a query of the processes on %s failed", device)
        return None

    def facts(self) -> tuple[DeviceFacts, ...]:
        """The last good values: GPUs that can be used, in the driver's order, then RAM."""
        gpus = (
            DeviceFacts(
                gpu.id,
                gpu.total,
                gpu.free if gpu.free is not None else gpu.total,
                self._overhead,
                gpu.library,
                gpu.integrated,
                gpu.compute,
                gpu.driver,
                alone=gpu.alone,
            )
            for gpu in self._gpus or ()
            if not gpu.trouble
        )
        memory = self._memory or UNKNOWN_MEMORY
        return (*gpus, DeviceFacts(CPU, memory.total, memory.free, library="cpu"))

    def report(self) -> MachineReport:
        """The last good values, also of what is not used, and why."""
        return MachineReport(self._gpus, self._memory)


def _with_free(gpu: DeviceReport, before: DeviceReport | None) -> DeviceReport:
    """A report without a free figure keeps the one before."""
    if gpu.free is not None or gpu.trouble or before is None or before.free is None:
        return gpu
    return replace(gpu, free=before.free)


def _tell(gpus: Sequence[DeviceReport], known: Mapping[str, DeviceReport]) -> None:
    """A GPU that goes, or comes back, is no secret: models move without anybody having asked for it (R65)."""
    for gpu in gpus:
        before = known.get(gpu.id)
        if gpu.trouble and (before is None or before.trouble != gpu.trouble):
            log.warning("%s (%s) is not used any more: %s", gpu.id, gpu.name, gpu.trouble)
        elif not gpu.trouble and (before is None or before.trouble):
            log.info("%s (%s) can be used", gpu.id, gpu.name)
    ids = {gpu.id for gpu in gpus}
    for id_, before in known.items():
        if id_ not in ids:
            log.warning("%s (%s) is not reported any more", id_, before.name)
