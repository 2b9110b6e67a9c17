"""The axis of time: linear, without the long stretches in which nothing happens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

__all__ = ["Axis", "Cut"]

CUT_WIDTH: Final = 36.0
"""Pixels."""
LEAST_CUT: Final = 10.0
"""Seconds: shorter stretches are never cut."""
LABEL: Final = 50.0
"""Pixels between two labels, at least."""
STEPS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 3600)


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch that is drawn short."""

    since: float
    until: float


class Axis:
    """From 0 to `end` seconds, between `left` and `right` pixels; `instants` are when something happens."""

    def __init__(self, instants: Iterable[float], *, end: float, left: float, right: float) -> None:
        self.end, self.left, self.right = end, left, right
        known = sorted({0.0, end, *(at for at in instants if 0 < at < end)})
        self.cuts = list(_cuts(known))
        self._shown = end - sum(cut.until - cut.since for cut in self.cuts)
        self._scale = (right - left - CUT_WIDTH * len(self.cuts)) / self._shown
        self._corners = [(0.0, left)]
        for cut in self.cuts:
            x = self._corners[-1][1] + (cut.since - self._corners[-1][0]) * self._scale
            self._corners += [(cut.since, x), (cut.until, x + CUT_WIDTH)]
        self._corners.append((end, right))

    def x(self, at: float) -> float:
        """Instants after the end are at the end."""
        if at >= self.end:
            return self.right
        index = min(bisect_right(self._corners, at, key=lambda corner: corner[0]), len(self._corners) - 1)
        (since, left), (until, right) = self._corners[index - 1], self._corners[index]
        return right if until <= since else left + (right - left) * (at - since) / (until - since)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """(pixels, label) of round instants outside the cuts, with room for each label."""
        most = (self.right - self.left) / LABEL
        step = next((step for step in STEPS if self._shown / step <= most), STEPS[-1] * 24)
        edges = [0.0, *(at for cut in self.cuts for at in (cut.since, cut.until)), self.end]
        last = float("-inf")
        for since, until in zip(edges[::2], edges[1::2], strict=True):
            for number in range(-int(-since // step), int(until / step) + 1):
                x = self.x(number * step)
                if x - last >= LABEL * 0.9:
                    last = x
                    yield x, f"{number * step:.10g} s"


def _cuts(instants: list[float]) -> Iterator[Cut]:
    """Gaps that would take more room than all shorter ones together."""
    gaps = sorted(after - before for before, after in pairwise(instants))
    total = 0.0
    for gap in gaps:
        if gap > max(total, LEAST_CUT):
            break
        total += gap
    else:
        return
    if total == 0.0:
        return  # there is nothing else to show
    for before, after in pairwise(instants):
        if after - before >= gap:
            yield Cut(before, after)
