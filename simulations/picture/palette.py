"""How the pictures look: colours, textures, texts, and the signs of what happened."""

from __future__ import annotations

from typing import Final

from .story import Kind, Stage
from .svg import element, polygon

__all__ = [
    "ALARM",
    "COLOURS",
    "FAINT",
    "INK",
    "LINE",
    "PAPER",
    "PATTERNS",
    "STAGES",
    "STYLE",
    "VIOLET",
    "cross",
    "sign",
    "stop",
]

COLOURS: Final = (
    "#4e79a7", "#e0883a", "#59a14f", "#b07aa1", "#17a2a2", "#c79f27", "#8c6d4f", "#e07b9a", "#6b6ecf", "#8ca252",
)  # fmt: skip
FAINT, LINE, PAPER, INK, ALARM, VIOLET = "#6e7781", "#d8dee4", "#ffffff", "#24292f", "#cf222e", "#8250df"
STAGES: Final = {
    Stage.QUEUED: "#c3cad3",
    Stage.EVICTING: "#f0a89c",
    Stage.LOADING: "#f5d58c",
    Stage.SLOT: "#a9cdf0",
}
"""From its grant on a request has the colour of its model."""
MARKS: Final = {
    Kind.LOAD: "#1a7f37",
    Kind.EVICT: VIOLET,
    Kind.CRASH: ALARM,
    Kind.FAILED_LOAD: ALARM,
    Kind.OUT_OF_MEMORY: ALARM,
    Kind.FAULT: "#bc4c00",
}

STYLE: Final = (
    f"text{{font-family:'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:{INK}}}"
    f".s{{font-size:11px;fill:{FAINT}}}.h{{font-size:12.5px;font-weight:600}}.t{{font-size:17px;font-weight:600}}"
    ".p{font-size:14px;font-weight:600}.b{font-size:11px;fill:#fff;font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}"
    ".bar rect{shape-rendering:crispEdges}"
)


def _hatch(id_: str, fill: str, opacity: str) -> str:
    return element(
        "pattern", element("rect", width=3, height=6, fill=fill, fill_opacity=opacity),
        id=id_, width=6, height=6, patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
    )  # fmt: skip


PATTERNS: Final = _hatch("light", PAPER, ".55") + _hatch("never", ALARM, ".8")
"""Laid over a colour: `fill="url(#light)"`."""


def sign(kind: Kind, x: float, y: float, title: str = "") -> str:
    """The sign of something that happened: for an eviction (x, y) is its lowest point, else its centre."""
    look = {"title": title, "fill": MARKS[kind], "stroke": PAPER}
    match kind:
        case Kind.LOAD:
            return polygon([(x - 4, y - 6), (x + 6, y), (x - 4, y + 6)], **look)
        case Kind.EVICT:
            return polygon([(x - 6, y - 10), (x + 6, y - 10), (x, y)], **look)
        case Kind.CRASH:
            points = [(0, -8), (2, -2.5), (8, -3), (3.5, 1), (6, 7), (0, 3.5), (-6, 7), (-3.5, 1), (-8, -3), (-2, -2.5)]
            return polygon([(x + dx, y + dy) for dx, dy in points], **look)
        case Kind.OUT_OF_MEMORY:
            return polygon([(x - 5.5, y - 5.5), (x + 5.5, y - 5.5), (x + 5.5, y + 5.5), (x - 5.5, y + 5.5)], **look)
        case Kind.FAULT:
            return polygon([(x, y - 6), (x + 5, y), (x, y + 6), (x - 5, y)], **look)
        case Kind.FAILED_LOAD:
            return cross(x, y, 5, title)


def cross(x: float, y: float, size: float = 3.5, title: str = "") -> str:
    """The sign of a client that left."""
    path = f"M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} {2 * size}"
    return element("path", title=title, d=path, fill="none", stroke=ALARM, stroke_width=2)


def stop(x: float, y: float) -> str:
    """The sign of a request that ended without being served."""
    return element("circle", cx=x, cy=y, r=3.2, fill=PAPER, stroke=ALARM, stroke_width=1.6)
