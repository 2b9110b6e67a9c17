"""What need not be worked out again in each planner pass: placements, and whether a model fits at all.

Wanted configurations are interned, so that their identity is a key; the remembered values keep them alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .placements import never_fits, placements
from .records import Waiter
from .values import DeviceFacts, LaunchConfig, Placement, Policy

__all__ = ["Memo"]

REMEMBERED: Final = 1024
"""Configurations at most; then all is forgotten and worked out anew."""


class Memo:
    """Kept as long as somebody waits, and as long as what it was worked out from stays the same."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._interned: dict[LaunchConfig, LaunchConfig] = {}
        self._base: Mapping[str, int] = {}
        self._placements: dict[tuple[str, int], tuple[LaunchConfig, tuple[Placement, ...]]] = {}
        self._devices: Sequence[DeviceFacts] = ()
        self._totals: tuple[tuple[int, int], ...] = ()
        self._never_fits: dict[tuple[str, int], tuple[LaunchConfig, tuple[int, int] | None]] = {}

    def intern(self, config: LaunchConfig) -> LaunchConfig:
        """The one object that stands for all configurations equal to `config`."""
        return self._interned.setdefault(config, config)

    def placements(
        self, waiter: Waiter, devices: Sequence[DeviceFacts], base: Mapping[str, int]
    ) -> tuple[Placement, ...]:
        """The waiter's placements; the same while `base` is."""
        if base is not self._base:
            if base != self._base:
                self._placements.clear()
            self._base = base
        key = (waiter.key, id(waiter.wanted))
        known = self._placements.get(key)
        if known is None:
            found = placements(waiter.demand.model, waiter.wanted, devices, base, self._policy)
            known = self._placements[key] = (waiter.wanted, found)
        return known[1]

    def never_fits(self, waiter: Waiter, devices: Sequence[DeviceFacts]) -> tuple[int, int] | None:
        """(needed, available) bytes if the model fits nowhere, else None; the same while the devices' totals are."""
        if devices is not self._devices:
            self._devices = devices
            totals = tuple((device.total, device.overhead) for device in devices)
            if totals != self._totals:
                self._totals = totals
                self._never_fits.clear()
        key = (waiter.key, id(waiter.wanted))
        known = self._never_fits.get(key)
        if known is None:
            verdict = never_fits(waiter.demand.model, waiter.wanted, devices, self._policy)
            known = self._never_fits[key] = (waiter.wanted, verdict)
        return known[1]

    def forget(self, *, unless_few: bool) -> None:
        """Drop everything: when nobody waits any more, or when too much has come together."""
        if unless_few and len(self._interned) <= REMEMBERED:
            return
        self._interned.clear()
        self._placements.clear()
        self._never_fits.clear()

    def __len__(self) -> int:
        return len(self._interned)
