"""Which of several GPUs that would do is tried first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .values import DeviceFacts, Placement

__all__ = ["Ranking"]


class Ranking:
    """Discrete GPUs before all others, then by what was `free` on them at the start of a pass (R63)."""

    def __init__(self, devices: Sequence[DeviceFacts], free: Mapping[str, int]) -> None:
        self._devices = devices
        self._free = dict(free)
        self._rank: dict[str, int] = {}

    def best_first(self, placements: Sequence[Placement]) -> Sequence[Placement]:
        return sorted(placements, key=self._of) if len(placements) > 1 else placements

    def _of(self, placement: Placement) -> int:
        if not placement.gpus:
            return 0
        if not self._rank:
            ranked = sorted(self._devices, key=lambda gpu: (gpu.integrated, -self._free[gpu.id], gpu.id))
            self._rank.update((device.id, rank) for rank, device in enumerate(ranked))
        return self._rank[placement.gpus[0]]
