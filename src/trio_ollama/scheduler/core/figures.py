"""The devices as they were last measured, and whether that is recent enough to start a load on it (R35)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from .events import Overbooked
from .records import Runner
from .step import Step
from .values import DeviceFacts

__all__ = ["FACTS_MAX_AGE", "Figures"]

FACTS_MAX_AGE: Final = 500_000_000
"""Nanoseconds after which memory figures are measured again before a load is started on them."""


class Figures:
    def __init__(self, step: Step) -> None:
        self.devices: Sequence[DeviceFacts] = ()
        self._step = step
        self._measured_at: int | None = None
        self._changed_at = 0
        self._overbooked: set[str] = set()

    @property
    def fresh(self) -> bool:
        return self._measured_at is not None and self._step.now - self._measured_at <= FACTS_MAX_AGE

    def outdate(self) -> None:
        """A process has ended: figures from before are worth nothing to the next load (R35)."""
        self._measured_at, self._changed_at = None, self._step.now

    def report(self, devices: Sequence[DeviceFacts], started: int, runners: Collection[Runner]) -> bool:
        """Figures of a query that began at `started`; True if they differ from those before."""
        before, self.devices = self.devices, tuple(devices)
        if started >= self._changed_at:
            self._measured_at = self._step.now
        for device in self.devices:
            reserved = sum([runner.holds(device.id) for runner in runners])
            if reserved <= device.total:
                self._overbooked.discard(device.id)
            elif device.id not in self._overbooked:
                self._overbooked.add(device.id)
                self._step.publish(Overbooked(self._step.now, "", device.id, reserved, device.total))
        return self.devices != before
