"""What the colours, textures and signs of a picture mean."""

from __future__ import annotations

from collections.abc import Sequence

from .palette import ALARM, COLOURS, STAGES, sign, stop
from .svg import element, text

__all__ = ["legend"]

SLATE = "#57606a"
"""Stands for the colour of any model."""


def legend(left: float, y: float) -> list[str]:
    """Three rows from `y` on, their samples from `left` on."""
    signs = ("load", "evict", "crash", "failed load")
    runners = [
        ("loading", _swatch(SLATE) + _swatch("url(#loading)")),
        ("ready", _swatch(SLATE)),
        ("draining", _swatch(SLATE, ".5")),
        ("stopping", _swatch("#8c959f", height=7)),
        ("memory coming back", _swatch("#d0d7de", height=7)),
        *((kind, sign(kind, 12, 11 if kind == "evict" else 6)) for kind in signs),
    ]
    requests = [
        *((str(stage), _swatch(colour, height=7)) for stage, colour in STAGES.items()),
        ("running (its model's colour)", _swatch(COLOURS[0], height=7)),
        ("cancel", sign("cancel", 12, 6)),
        ("refused or lost", stop(12, 6)),
    ]
    line = element("line", x2=24, y1=6, y2=6, stroke=ALARM, stroke_dasharray="6 4")
    devices = [("capacity", line), ("bytes reserved by a runner (its model's colour)", _swatch(COLOURS[0], ".78"))]
    rows = (("Devices", devices), ("Runners", runners), ("Requests", requests))
    return [part for number, (name, entries) in enumerate(rows) for part in _row(name, entries, left, y + 22 * number)]


def _swatch(fill: str, opacity: str = "1", height: float = 12) -> str:
    return element("rect", y=(12 - height) / 2, width=24, height=height, fill=fill, fill_opacity=opacity)


def _row(name: str, entries: Sequence[tuple[str, str]], left: float, y: float) -> list[str]:
    parts = [text(left - 14, y + 10.5, name, class_="h e")]
    x = left
    for words, sample in entries:
        parts.append(element("g", sample, text(30, 10.5, words), transform=f"translate({x:.0f} {y:.0f})"))
        x += 52 + 6.7 * len(words)
    return parts
