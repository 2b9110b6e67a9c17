"""How the pictures look: colours, texts, and the signs of what happened."""

from __future__ import annotations

from typing import Final

from trio_ollama.scheduler.core.stages import Stage

from .svg import element, polygon

__all__ = ["ALARM", "COLOURS", "FAINT", "HATCH", "LINE", "PAPER", "STAGES", "STYLE", "sign", "stop"]

COLOURS: Final = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#17a2a2", "#d4a72c", "#8c6d4f", "#e07b9a", "#6b6ecf", "#8ca252",
)  # fmt: skip
FAINT, LINE, PAPER, ALARM = "#6e7781", "#d8dee4", "#ffffff", "#cf222e"
STAGES: Final = {
    Stage.QUEUED: "#c3cad3",
    Stage.WAITING_FOR_DRAIN: "#f0a89c",
    Stage.WAITING_FOR_LOAD: "#f5d58c",
    Stage.WAITING_FOR_SLOT: "#a9cdf0",
}
"""Running requests have the colour of their model."""
MARKS: Final = {"load": "#1a7f37", "evict": "#8250df", "crash": ALARM, "failed load": ALARM, "cancel": ALARM}

STYLE: Final = (
    "text{font-family:'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#24292f}"
    ".s{font-size:11px;fill:#6e7781}.h{font-size:13px;font-weight:600}.t{font-size:20px;font-weight:600}"
    ".b{font-size:11px;fill:#fff;font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}"
)

HATCH: Final = element(
    "pattern",
    element("rect", width=3, height=6, fill=PAPER, fill_opacity=".55"),
    id="loading", width=6, height=6, patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
)  # fmt: skip
"""Laid over a colour: `fill="url(#loading)"`."""


def sign(kind: str, x: float, y: float, title: str = "") -> str:
    """The sign of something that happened: for an eviction (x, y) is its lowest point, else its centre."""
    colour = MARKS[kind]
    match kind:
        case "load":
            return polygon([(x - 4, y - 6), (x + 6, y), (x - 4, y + 6)], title=title, fill=colour, stroke=PAPER)
        case "evict":
            return polygon([(x - 6, y - 10), (x + 6, y - 10), (x, y)], title=title, fill=colour, stroke=PAPER)
        case "crash":
            points = [(0, -8), (2, -2.5), (8, -3), (3.5, 1), (6, 7), (0, 3.5), (-6, 7), (-3.5, 1), (-8, -3), (-2, -2.5)]
            return polygon([(x + dx, y + dy) for dx, dy in points], title=title, fill=colour, stroke=PAPER)
        case _:
            size = 3.5 if kind == "cancel" else 5
            path = f"M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} {2 * size}"
            return element("path", title=title, d=path, fill="none", stroke=colour, stroke_width=2)


def stop(x: float, y: float) -> str:
    """The sign of a request that ended without being served."""
    return element("circle", cx=x, cy=y, r=3.2, fill=PAPER, stroke=ALARM, stroke_width=1.6)
