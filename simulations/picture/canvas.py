"""Where the parts of a picture are put: from top to bottom, over one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from .axis import Axis
from .palette import FAINT, LINE, PAPER
from .story import Course
from .svg import element, polygon, text

__all__ = ["FOR_EVER", "LEFT", "RIGHT", "WIDTH", "Canvas"]

WIDTH: Final = 960
"""About what a README shows without making it smaller."""
LEFT, RIGHT = 122, 946
"""Where the axis of time begins and ends."""
FOR_EVER: Final = 142.0
"""Pixels between the end of the axis and its arrow, if somebody waits for ever."""


class Canvas:
    """`used` collects what needs an explanation."""

    def __init__(self, axis: Axis, colours: Mapping[str, str], *, until: float) -> None:
        self.axis, self.colours, self.until = axis, colours, until
        self.parts: list[str] = []
        self.used: set[str] = set()
        self.y = 0.0

    def add(self, *parts: str) -> None:
        self.parts += parts

    def x(self, at: float) -> float:
        return self.axis.x(at)

    def lane(self, height: float, gap: float = 20) -> float:
        """Its top; the next lane begins below it."""
        top = self.y
        self.y += height + gap
        return top

    def label(self, y: float, words: str, small: str = "") -> None:
        self.add(text(LEFT - 14, y, words, class_="h e"))
        if small:
            self.add(text(LEFT - 14, y + 14, small, class_="s e"))

    def bar(self, since: float, until: float, y: float, height: float, *, least: float = 0.8, **look: str) -> str:
        x = self.x(since)
        return element("rect", x=x, y=y, width=max(least, self.x(until) - x), height=height, **look)

    def rule(self, y: float, **look: str | float) -> None:
        """A line from the beginning to the end."""
        ends: dict[str, str | float] = {"x1": LEFT, "x2": self.axis.right, "y1": y, "y2": y}
        self.add(element("line", title="", **(ends | look)))

    def corners(self, heights: Iterable[tuple[float, float, float]]) -> list[tuple[float, float]]:
        """The corners of a line that keeps each height over its (since, until, height)."""
        return [corner for since, until, y in heights for corner in ((self.x(since), y), (self.x(until), y))]

    def stack(self, courses: Sequence[Course[int]]) -> list[list[tuple[float, float, int, int]]]:
        """Each course on top of those before it: (since, until, from, to), where it is more than nothing."""
        instants = sorted({at for course in courses for at, _ in course.changes if at < self.until} | {self.until})
        stacked: list[list[tuple[float, float, int, int]]] = [[] for _ in courses]
        for since, until in pairwise(instants):
            below = 0
            for course, pieces in zip(courses, stacked, strict=True):
                amount = course.at(since) or 0
                if amount:
                    pieces.append((since, until, below, below + amount))
                below += amount
        return stacked

    def area(self, pieces: Sequence[tuple[float, float, float, float]], *, title: str, **look: str | float) -> None:
        """What lies between two lines: (since, until, bottom, top); pieces that do not touch are areas of their own."""
        run: list[tuple[float, float, float, float]] = []
        for piece in [*pieces, None]:
            if run and (piece is None or piece[0] != run[-1][1]):
                upper = self.corners((since, until, top) for since, until, _, top in run)
                lower = self.corners((since, until, bottom) for since, until, bottom, _ in run)
                self.add(polygon([*upper, *reversed(lower)], title=title, **look))
                run = []
            if piece is not None:
                run.append(piece)

    def grid(self, top: float) -> list[str]:
        """The lines of the axis from `top` to here, to be put below everything else; its labels follow here."""
        bottom = self.y - 14
        lines = []
        for x, words in self.axis.ticks():
            lines.append(element("line", x1=x, x2=x, y1=top, y2=bottom, stroke=LINE, stroke_width=0.8))
            if not any(abs(x - self.x(cut.since) - 18) < 50 for cut in self.axis.cuts):
                self.add(text(x, bottom + 15, words, class_="s m"))
        for cut in self.axis.cuts:
            middle = (self.x(cut.since) + self.x(cut.until)) / 2
            self._tear(middle, top, bottom)
            self.add(text(middle, bottom + 15, f"… {cut.until - cut.since:,.0f} s …", class_="s m"))
        if self.axis.right < RIGHT:
            self._tear(self.axis.right + 10, top, bottom)
            self.add(text(RIGHT, bottom + 15, "for ever", class_="s e"))
        self.y += 22
        return lines

    def _tear(self, x: float, top: float, bottom: float) -> None:
        """Here time is missing."""
        edge = [
            (x + (3 if number % 2 else -3), min(top + 8 * number, bottom))
            for number in range(int((bottom - top) / 8) + 2)
        ]
        self.add(polygon([*((x - 3, y) for x, y in edge), *((x + 3, y) for x, y in reversed(edge))], fill=PAPER))
        for shift in (-3, 3):
            points = " ".join(f"{x + shift:.1f},{y:.1f}" for x, y in edge)
            self.add(element("polyline", points=points, fill="none", stroke=FAINT, stroke_width=0.7))
