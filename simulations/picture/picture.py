"""Runs as a picture: devices with stacked bytes, runners by phase, requests by stage, over one axis of time.

Colour says which model, texture says which state; so a model is followed from its request to its runner to its bytes.
Several stories of the same scenario stand one above the other, on the same axis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from .axis import Axis
from .canvas import FOR_EVER, LEFT, RIGHT, WIDTH, Canvas
from .devices import devices, faults
from .legend import legend
from .palette import ALARM, COLOURS, INK, LINE, PAPER, PATTERNS, STYLE
from .requests import everybody, requests
from .runners import runners
from .story import End, Kind, Story
from .svg import element, text

__all__ = ["draw"]

MARGIN = 20
LETTERS = 138
"""In a line of text over the whole width."""


def draw(title: str, stories: Sequence[Story], *, subtitle: str = "", until: float | None = None) -> str:
    """The SVG. `until`: seconds at which it ends; by default when nothing of interest follows in any story."""
    end = until if until is not None else max(story.until for story in stories)
    never = until is None and any(lane.end is End.NEVER for story in stories for lane in story.requests)
    instants = [at for story in stories for at in story.instants()]
    axis = Axis(instants, end=end or 1.0, left=LEFT, right=RIGHT - (FOR_EVER if never else 0))
    models = dict.fromkeys(lane.model for story in stories for lane in story.requests)
    colours = {model: COLOURS[index % len(COLOURS)] for index, model in enumerate(models)}
    canvas = Canvas(axis, colours, until=axis.end)
    canvas.y = 34
    for line in wrap(title, 92):
        canvas.add(text(MARGIN, canvas.y, line, class_="t"))
        canvas.y += 24
    for line in wrap(subtitle, LETTERS):
        canvas.add(text(MARGIN, canvas.y - 3, line, class_="s"))
        canvas.y += 17
    canvas.y += 4
    for number, story in enumerate(stories):
        if number:
            canvas.y += 22
            canvas.add(element("line", x1=MARGIN, x2=RIGHT, y1=canvas.y - 24, y2=canvas.y - 24, stroke=LINE))
        _panel(canvas, story)
    samples, canvas.y = legend(canvas.used, LEFT, RIGHT, canvas.y + 2)
    canvas.add(*samples)
    canvas.y += 8
    return element(
        "svg", element("style", STYLE), element("defs", PATTERNS),
        element("rect", width=WIDTH, height=canvas.y, fill=PAPER), *(f"\n{part}" for part in canvas.parts), "\n",
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {canvas.y:.0f}", width=WIDTH, height=canvas.y,
        role="img", title=title,
    )  # fmt: skip


def _panel(canvas: Canvas, story: Story) -> None:
    canvas.add(text(MARGIN, canvas.y, story.heading, class_="p"))
    canvas.add(text(RIGHT, canvas.y, _figures(story, canvas.until), class_="s e"))
    for line in wrap(story.remark, LETTERS):
        canvas.y += 17
        canvas.add(text(MARGIN, canvas.y, line, style=f"fill:{ALARM if story.broken else INK}"))
    canvas.y += 18
    top, before = canvas.y - 4, len(canvas.parts)
    faults(canvas, story)
    devices(canvas, story, 110 if len(story.devices) < 3 else 72)
    runners(canvas, story)
    everybody(canvas, story)
    requests(canvas, story)
    canvas.parts[before:before] = canvas.grid(top)


def _figures(story: Story, until: float) -> str:
    kinds = Counter(mark.kind for lane in story.runners for mark in lane.marks if mark.at <= until)
    cancelled = sum(lane.end is End.CANCELLED for lane in story.requests)
    figures = (
        (len(story.requests), "request"), (kinds[Kind.LOAD], "load"), (kinds[Kind.EVICT], "eviction"),
        (cancelled, "cancel"), (kinds[Kind.CRASH], "crash"),
    )  # fmt: skip
    return ", ".join(f"{count} {what}{_plural(what, count)}" for count, what in figures if count)


def _plural(what: str, count: int) -> str:
    return "" if count == 1 else "es" if what.endswith("sh") else "s"
