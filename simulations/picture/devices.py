"""The lanes of the devices: bytes in use, stacked, up to the line of the capacity; above them what goes wrong."""

from __future__ import annotations

from collections.abc import Sequence

from trio_ollama.scheduler.core.events import human_bytes
from trio_ollama.scheduler.core.values import RAM

from .canvas import RIGHT, Canvas
from .palette import ALARM, FAINT, INK, PAPER, sign
from .story import Holding, Story
from .svg import element, text

__all__ = ["devices", "faults"]

Piece = tuple[float, float, float, float]
"""(since, until, bottom, top)"""
OTHERS = "#d0d7de"
MOST_ROWS = 3
"""With words; what finds no room there has a row without."""


def faults(canvas: Canvas, story: Story) -> None:
    """A sign for each, with words while there is room for them, and a tooltip."""
    marks = [mark for mark in story.faults if mark.at <= canvas.until]
    if not marks:
        return
    rows: list[float] = []
    """Where the words of each row end."""
    for mark in marks:
        x, width = canvas.x(mark.at), 20 + 6.1 * len(mark.text)
        backwards = x + width > RIGHT
        left = x - width + 8 if backwards else x - 8
        row = next((row for row, end in enumerate(rows) if end <= left), len(rows))
        row = min(row, MOST_ROWS)
        rows[row : row + 1] = [left + width]
        y = canvas.y + 7 + 15 * row
        canvas.add(sign(mark.kind, x, y, f"{mark.at:.3f} s: {mark.text}"))
        if row < MOST_ROWS:
            canvas.add(text(x + (-9 if backwards else 9), y + 4, mark.text, class_="s e" if backwards else "s"))
    canvas.label(canvas.y + 11, "Trouble")
    canvas.lane(15 * len(rows))


def devices(canvas: Canvas, story: Story, height: float) -> None:
    """A lane for each GPU, and for RAM where somebody uses more than a little of it."""
    for name, size in story.devices.items():
        amounts = [amount for held in story.holdings if held.device == name for _, _, amount in held.amount.spans()]
        if name != RAM or max(amounts, default=0) > size / 20:
            _device(canvas, story, name, size, height)


def _device(canvas: Canvas, story: Story, name: str, size: int, height: float) -> None:
    top = canvas.lane(height)
    bottom = top + height
    canvas.label(top + 13, "RAM" if name == RAM else name.replace("-", " "), human_bytes(size))
    holdings = [held for held in story.holdings if held.device == name]
    stacks = canvas.stack([held.amount for held in holdings])
    most = max((high for stacked in stacks for *_, high in stacked), default=0)
    scale = height / max(size, most)  # some fault may take more than there is
    names = []
    for held, stacked in zip(holdings, stacks, strict=True):
        pieces = [(since, until, bottom - low * scale, bottom - high * scale) for since, until, low, high in stacked]
        if pieces:
            _holding(canvas, held, pieces)
            names.append(_name(canvas, held, pieces))
    canvas.add(*names)
    reserved = story.reserved.get(name)
    if reserved is not None:
        canvas.used.add("reserved")
        spans = [(since, until, bottom - amount * scale) for since, until, amount in reserved.spans(canvas.until)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in canvas.corners(spans))
        canvas.add(element("polyline", points=points, fill="none", stroke=INK, stroke_width=1.1))
    canvas.used.add("use")
    canvas.rule(bottom, stroke=FAINT, stroke_width=0.8)
    canvas.rule(bottom - size * scale, stroke=ALARM, stroke_width=1, stroke_dasharray="6 4")


def _holding(canvas: Canvas, held: Holding, pieces: Sequence[Piece]) -> None:
    title = f"{held.name}: {_most(held)} on {held.device}"
    if held.model:
        colour = canvas.colours[held.model]
        canvas.area(pieces, title=title, fill=colour, fill_opacity=0.78, stroke=PAPER, stroke_width=0.8)
    else:
        canvas.used.add("others")
        for fill in (OTHERS, "url(#light)"):
            canvas.area(pieces, title=title, fill=fill)


def _name(canvas: Canvas, held: Holding, pieces: Sequence[Piece]) -> str:
    """In its widest piece, as much as fits."""
    since, until, low, high = max(pieces, key=lambda piece: canvas.x(piece[1]) - canvas.x(piece[0]))
    room = canvas.x(until) - canvas.x(since)
    wordings = (f"{held.model} {_most(held)}", held.model) if held.model else ("others",)
    fitting = [words for words in wordings if room > 7 * len(words) + 12]
    if low - high < 12.5 or not fitting:
        return ""
    return text(canvas.x(since) + 6, high + 12, fitting[0], class_="b" if held.model else "s")


def _most(held: Holding) -> str:
    return human_bytes(max(amount for *_, amount in held.amount.spans()))
