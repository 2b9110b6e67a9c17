"""A picture of a plan: bars for the time to the first token and for the wait in the queue, one group for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from simulations.picture.svg import element, text

from .table import Row, cell

__all__ = ["draw"]

LEFT, RIGHT, TOP, GROUP, BAR, CHART = 230, 110, 64, 46, 12, 520
COLOURS: Final = {"first": "#4e79a7", "queue": "#f28e2b"}
FAINT: Final = "#d8dee4"
STYLE: Final = (
    "text{font-family:'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#24292f}"
    ".s{font-size:11px;fill:#6e7781}.t{font-size:16px;font-weight:600}.e{text-anchor:end}"
)


def draw(title: str, rows: Sequence[tuple[str, Row]]) -> str:
    """SVG. Each bar reaches to the 95th percentile, its dark part to the median."""
    longest = max((row.first_p95 or 0 for _, row in rows), default=0)
    longest = max(longest, max((row.queue_p95 or 0 for _, row in rows), default=0), 1e-3)
    scale = CHART / _rounded_up(longest)
    height = TOP + GROUP * len(rows) + 40
    inside = [element("rect", width=LEFT + CHART + RIGHT, height=height, fill="#ffffff")]
    inside.append(text(16, 26, title, class_="t"))
    for number, (kind, words) in enumerate((("first", "time to the first token"), ("queue", "wait in the queue"))):
        x = 16 + 200 * number
        inside.append(element("rect", x=x, y=38, width=BAR, height=BAR, fill=COLOURS[kind]))
        inside.append(text(x + 18, 48, words, class_="s"))
    inside.append(text(416, 48, "dark: median, light: 95 %", class_="s"))
    for part in range(5):
        at = LEFT + CHART * part / 4
        inside.append(element("line", x1=at, x2=at, y1=TOP, y2=height - 34, stroke=FAINT))
        inside.append(text(at - 8, height - 16, cell(_rounded_up(longest) * part / 4), class_="s"))
    for number, (words, row) in enumerate(rows):
        inside += _group(words, row, TOP + GROUP * number + 8, scale)
    return element(
        "svg",
        element("style", STYLE),
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {LEFT + CHART + RIGHT} {height}",
        width=LEFT + CHART + RIGHT,
        height=height,
    )


def _group(words: str, row: Row, y: float, scale: float) -> list[str]:
    counts = f"{row.requests} requests, {row.loads} loads"
    counts += f", {row.refused} refused" if row.refused else ""
    found = [text(LEFT - 10, y + 11, words, class_="e"), text(LEFT - 10, y + 26, counts, class_="s e")]
    for number, (kind, middle, most) in enumerate(
        (("first", row.first_p50, row.first_p95), ("queue", row.queue_p50, row.queue_p95))
    ):
        if middle is None or most is None:
            continue
        at = y + number * (BAR + 2)
        told = f"{words}: half within {cell(middle)}, 95 % within {cell(most)}"
        bar: dict[str, Any] = {"x": LEFT, "y": at, "height": BAR, "fill": COLOURS[kind]}
        found.append(element("rect", title=told, width=most * scale, fill_opacity=".4", **bar))
        found.append(element("rect", title=told, width=middle * scale, **bar))
        found.append(text(LEFT + most * scale + 6, at + 10, cell(most), class_="s"))
    return found


def _rounded_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten, or four times one."""
    power = 1e-3
    while True:
        for factor in (1, 2, 4, 5, 8):
            if value <= factor * power:
                return factor * power
        power *= 10
