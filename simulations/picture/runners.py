"""The lanes of the runners: colour says which model, texture says which phase."""

from __future__ import annotations

import math

from .canvas import LEFT, Canvas
from .palette import LINE, VIOLET, sign
from .story import Kind, Phase, RunnerLane, Story
from .svg import element, text

__all__ = ["runners"]

STEP = 25


def runners(canvas: Canvas, story: Story) -> None:
    """A row per model; generations that overlap get one more."""
    rows: list[list[RunnerLane]] = []
    for model in canvas.colours:
        mine: list[list[RunnerLane]] = []
        for lane in story.runners:
            if lane.model == model and _began(lane) < canvas.until:
                free = next((row for row in mine if _ended(row[-1]) <= _began(lane)), None)
                if free is None:
                    mine.append([lane])
                else:
                    free.append(lane)
        rows += mine
    top = canvas.lane(STEP * max(1, len(rows)), gap=14)
    if not rows:
        canvas.label(top + 18, "No runner")
    named: set[str] = set()
    for index, row in enumerate(rows):
        y = top + index * STEP + 6
        model = row[0].model
        if model not in named:
            named.add(model)
            words = f"runner of {model}" if len(model) < 5 else model
            canvas.add(text(LEFT - 14, y + 12, words, class_="h e", style=f"fill:{canvas.colours[model]}"))
        for lane in row:
            _lane(canvas, lane, y)
        for lane in row:
            _marks(canvas, lane, y)


def _began(lane: RunnerLane) -> float:
    return lane.phases.changes[0][0] if lane.phases.changes else math.inf


def _ended(lane: RunnerLane) -> float:
    at, phase = lane.phases.changes[-1]
    return at if phase is None else math.inf


def _lane(canvas: Canvas, lane: RunnerLane, y: float) -> None:
    parts, story = [], []
    widest = (0.0, 0.0)
    for since, until, phase in lane.phases.spans():
        story.append(f"{phase} at {since:.2f} s")
        if since < canvas.until:
            canvas.used.add(phase)
            parts += _phase(canvas, phase, since, min(until, canvas.until), y, canvas.colours[lane.model])
            if phase in (Phase.READY, Phase.CLAIMED, Phase.DRAINING):
                widest = max(widest, (canvas.x(until) - canvas.x(since), canvas.x(since)))
    if widest[0] > 7 * len(lane.name) + 14:
        parts.append(text(widest[1] + 8, y + 12, lane.name, class_="b"))
    if _ended(lane) < math.inf:
        story.append(f"gone at {_ended(lane):.2f} s")
    title = f"{lane.name}: {', '.join(story)}" + (f"; {lane.text}" if lane.text else "")
    canvas.add(element("g", *parts, title=title, class_="bar runner"))


def _phase(canvas: Canvas, phase: Phase, since: float, until: float, y: float, colour: str) -> list[str]:
    match phase:
        case Phase.LOADING:
            return [canvas.bar(since, until, y, 17, fill=fill) for fill in (colour, "url(#light)")]
        case Phase.READY:
            return [canvas.bar(since, until, y, 17, fill=colour)]
        case Phase.CLAIMED:
            return [canvas.bar(since, until, y, 17, fill=colour), canvas.bar(since, until, y + 14, 4, fill=VIOLET)]
        case Phase.DRAINING:
            return [canvas.bar(since, until, y, 17, fill=colour, fill_opacity=".5")]
        case Phase.STOPPING | Phase.RETURNING:
            return [canvas.bar(since, until, y + 5, 7, fill="#8c959f" if phase is Phase.STOPPING else LINE)]


def _marks(canvas: Canvas, lane: RunnerLane, y: float) -> None:
    crashes = {mark.at for mark in lane.marks if mark.kind is Kind.CRASH}
    for mark in lane.marks:
        same = mark.kind is Kind.FAILED_LOAD and mark.at in crashes
        if mark.at <= canvas.until and not same:
            canvas.used.add(mark.kind)
            canvas.add(sign(mark.kind, canvas.x(mark.at), y + 8.5, f"{mark.at:.2f} s: {mark.text}"))
