"""The lanes of the requests by stage; where there are many, also how many wait and run at each moment."""

from __future__ import annotations

import math
from itertools import zip_longest
from statistics import median
from typing import Final

from .canvas import LEFT, RIGHT, Canvas
from .palette import ALARM, FAINT, STAGES, cross, stop
from .story import Course, End, RequestLane, Stage, Story
from .svg import element, text

__all__ = ["FEW", "MOST", "everybody", "requests"]

MOST: Final = 40
"""Rows."""
FEW: Final = 14
"""Up to so many have thick rows, each with its name."""


def everybody(canvas: Canvas, story: Story) -> None:
    """How many requests wait (below) and run (above): all of them, whether they get a row or not."""
    if len(story.requests) <= FEW:
        return
    changes: list[tuple[float, int, int]] = []
    for lane in story.requests:
        for since, until, stage in lane.stages.spans(min(lane.ended, canvas.until)):
            waits, runs = int(stage.waits), int(not stage.waits)
            changes += [(since, waits, runs), (until, -waits, -runs)]
    waiting, running = Course[int](), Course[int]()
    counts = [0, 0]
    for at, waits, runs in sorted(changes):
        counts = [counts[0] + waits, counts[1] + runs]
        waiting.note(at, counts[0])
        running.note(at, counts[1])
    stacked = canvas.stack([waiting, running])
    most = max((high for pieces in stacked for *_, high in pieces), default=1)
    height = 50.0
    bottom = canvas.lane(height, gap=14) + height
    canvas.label(bottom - height + 14, "All requests", f"at most {most}")
    for pieces, colour, what in zip(stacked, ("#c3cad3", "#57606a"), ("waiting", "running"), strict=True):
        scaled = [(a, b, bottom - height * low / most, bottom - height * high / most) for a, b, low, high in pieces]
        canvas.area(scaled, title=what, fill=colour)
    canvas.rule(bottom, stroke=FAINT, stroke_width=0.8)


def requests(canvas: Canvas, story: Story) -> None:
    """A row each, in order of arrival. If there are too many: those that never end, those that were cancelled, others
    that were not served, and those that waited longest; none of these takes all the rows.
    """
    lanes = [lane for lane in story.requests if lane.arrived <= canvas.until]
    groups: dict[End, list[RequestLane]] = {end: [] for end in reversed(End)}
    for lane in sorted(lanes, key=lambda lane: -lane.waited):
        groups[lane.end].append(lane)
    turns = [lane for turn in zip_longest(*groups.values()) for lane in turn if lane is not None]
    chosen = {id(lane) for lane in turns[:MOST]}
    shown = [lane for lane in lanes if id(lane) in chosen]
    rest = turns[MOST:]
    few = len(lanes) <= FEW
    step, thick = (18, 11) if few else (9.5, 6.5)
    top = canvas.lane(step * len(shown) + (16 if rest else 0))
    if not few:
        canvas.label(top + 9, "Requests", f"{len(shown)} of {len(lanes)}" if rest else "in order of arrival")
    for index, lane in enumerate(shown):
        y = top + index * step + 1
        if few:
            name = f"{lane.name}: {lane.model}"
            canvas.add(text(LEFT - 14, y + thick - 1.5, name, class_="e"))
        _lane(canvas, lane, y, thick)
    if rest:
        answered = sum(lane.end is End.ANSWERED for lane in rest)
        waited = median(lane.waited for lane in rest)
        words = f"and {len(rest)} more: {answered} of them answered, median wait {waited:.2f} s"
        canvas.add(text(LEFT, top + step * len(shown) + 12, words, class_="s"))


def _lane(canvas: Canvas, lane: RequestLane, y: float, thick: float) -> None:
    parts, story = [], [f"arrives at {lane.arrived:.2f} s"]
    colour = canvas.colours[lane.model]
    for since, until, stage in lane.stages.spans(lane.ended):
        story.append(f"{stage} {until - since:.2f} s" if until < math.inf else str(stage))
        if since < canvas.until:
            canvas.used.add(stage)
            look = {"fill": STAGES.get(stage, colour)} | ({"fill_opacity": ".45"} if stage is Stage.PROMPT else {})
            least = 0.4 if stage.waits else 1.5
            parts.append(canvas.bar(since, min(until, canvas.until), y, thick, least=least, **look))
    if lane.ended <= canvas.until:
        story.append(f"{lane.end} at {lane.ended:.2f} s")
        parts += _end(canvas, lane, y + thick / 2)
    elif lane.end is End.NEVER:
        story.append(lane.end)
        if canvas.axis.right < RIGHT:
            parts += _never(canvas, lane, y, thick)
    title = f"{lane.name} for {lane.model}: {', '.join(story)}" + (f" ({lane.text})" if lane.text else "")
    canvas.add(element("g", *parts, title=title, class_="bar request"))


def _end(canvas: Canvas, lane: RequestLane, y: float) -> list[str]:
    x = canvas.x(lane.ended)
    canvas.used.add(lane.end)
    match lane.end:
        case End.CANCELLED:
            return [cross(x, y)]
        case End.FAILED:
            return [stop(x + 3, y)]
        case _:
            return []


def _never(canvas: Canvas, lane: RequestLane, y: float, thick: float) -> list[str]:
    """Beyond the end of the axis: hatched, to the edge."""
    canvas.used.add(End.NEVER)
    x, tip = canvas.axis.right, RIGHT
    stage = next((stage for *_, stage in reversed(list(lane.stages.spans()))), Stage.QUEUED)
    shape = f"M{x:.1f} {y:.1f}H{tip - 6}L{tip} {y + thick / 2:.1f}L{tip - 6} {y + thick:.1f}H{x:.1f}Z"
    parts = [
        element("path", d=shape, fill=fill) for fill in (STAGES.get(stage, canvas.colours[lane.model]), "url(#never)")
    ]
    if thick > 9:
        words = str(lane.end)
        parts.append(element("rect", x=x + 24, y=y - 1, width=94, height=thick + 2, rx=3, fill="#fff"))
        parts.append(
            text(x + 71, y + thick - 1.5, words, class_="m", style=f"fill:{ALARM};font-weight:600;font-size:11px")
        )
    return parts
