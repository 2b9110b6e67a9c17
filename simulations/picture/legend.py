"""What the colours, textures and signs of a picture mean: of those that are in it."""

from __future__ import annotations

from collections.abc import Collection

from .palette import ALARM, COLOURS, INK, LINE, STAGES, VIOLET, cross, sign, stop
from .story import End, Kind, Phase, Stage
from .svg import element, text

__all__ = ["legend"]

SLATE = "#57606a"
"""Stands for the colour of any model."""
ROW = 20.0


def legend(used: Collection[str], left: float, right: float, top: float) -> tuple[list[str], float]:
    """What of `used` needs words, between `left` and `right`, from `top` on; and where it ends."""
    parts: list[str] = []
    for name, entries in _rows():
        shown = [(words, sample) for key, words, sample in entries if key in used]
        if not shown:
            continue
        parts.append(text(left - 14, top + 10.5, name, class_="h e"))
        x = left
        for words, sample in shown:
            width = 48 + 6.4 * len(words)
            if x + width > right:
                x, top = left, top + ROW
            parts.append(
                element("g", sample, text(30, 10.5, words, class_="s"), transform=f"translate({x:.0f} {top:.0f})")
            )
            x += width
        top += ROW
    return parts, top


def _rows() -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(name, [(key, words, sample)])"""
    full = element("line", x2=24, y1=6, y2=6, stroke=ALARM, stroke_dasharray="6 4")
    reserved = element("line", x2=24, y1=6, y2=6, stroke=INK, stroke_width=1.3)
    others = _swatch("#d0d7de") + _swatch("url(#light)")
    devices = [
        ("use", "bytes in use (colour: whose model)", _swatch(COLOURS[0], ".78")),
        ("others", "other programs", others),
        ("reserved", "reserved by the scheduler", reserved),
        ("use", "capacity", full),
    ]
    claimed = _swatch(SLATE) + element("rect", y=9, width=24, height=3, fill=VIOLET)
    runners: list[tuple[str, str, str]] = [
        (Phase.LOADING, "loading", _swatch(SLATE) + _swatch("url(#light)")),
        (Phase.READY, "ready", _swatch(SLATE)),
        (Phase.CLAIMED, "claimed: takes no later request", claimed),
        (Phase.DRAINING, "draining", _swatch(SLATE, ".5")),
        (Phase.STOPPING, "stopping", _swatch("#8c959f", height=7)),
        (Phase.RETURNING, "memory coming back", _swatch(LINE, height=7)),
        *(
            (kind, str(kind), sign(kind, 12, 11 if kind is Kind.EVICT else 6))
            for kind in Kind
            if kind is not Kind.FAULT
        ),
    ]
    requests: list[tuple[str, str, str]] = [
        *((stage, str(stage), _swatch(colour, height=7)) for stage, colour in STAGES.items()),
        (Stage.PROMPT, "has its runner, no token yet", _swatch(COLOURS[0], ".45", height=7)),
        (Stage.RUNNING, "running", _swatch(COLOURS[0], height=7)),
        (End.CANCELLED, "client leaves", cross(12, 6)),
        (End.FAILED, "refused or lost", stop(12, 6)),
        (End.NEVER, "for ever", _swatch("url(#never)", height=7)),
    ]
    return [("Devices", devices), ("Runners", runners), ("Requests", requests)]


def _swatch(fill: str, opacity: str = "1", height: float = 12) -> str:
    return element("rect", y=(12 - height) / 2, width=24, height=height, fill=fill, fill_opacity=opacity)
