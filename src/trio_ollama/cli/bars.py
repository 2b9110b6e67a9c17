"""Progress on a terminal: bars for what has a size, spinners for the other steps. Imported on terminals only.

Below the lines of what is done, which stay, one line or a few are drawn again and again. A line is made for the width
that there is: the less there is, the more parts of it are left out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from trio_ollama.cli.client import Json
from trio_ollama.cli.format import size

__all__ = ["Bar", "Display", "Spinner", "remaining"]

NARROWEST_BAR, WIDEST_BAR = 8, 50
COLUMNS: Final = (15, 9, 6)
"""Widths of what stands right of a bar: size, speed, time to go. A narrow terminal goes without the last ones."""
WINDOW: Final = 8.0
"""Seconds that a speed is the mean of."""
SAMPLE: Final = 0.25
"""Seconds between the samples that are kept of a transfer."""
FIRST_SPEED: Final = 0.5
"""Seconds before a speed is told: an earlier one would be chance."""
FRAMES: Final = {False: "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", True: "-\\|/"}
"""Of the spinner, a tenth of a second each; True where the terminal knows ASCII only."""
DRAWN: Final = 10
"""Times a second."""

Clock = Callable[[], float]


class Line(Protocol):
    """Something under way."""

    def text(self, width: int, now: float, *, ascii: bool = False) -> str:
        """As it is now, in at most `width` cells."""

    def last(self, width: int, now: float, *, ascii: bool = False) -> str:
        """What stays of it."""

    @property
    def ended(self) -> bool:
        """Whether nothing more is expected of it."""


class Spinner:
    """A step without a size."""

    ended = True  # with the next one

    def __init__(self, label: str) -> None:
        self._label = label

    def text(self, width: int, now: float, *, ascii: bool = False) -> str:
        frames = FRAMES[ascii]
        return _cut(f"{self._label} {frames[int(now * 10) % len(frames)]}", width)

    def last(self, width: int, now: float, *, ascii: bool = False) -> str:
        return self._label  # whole, even where it takes two lines


class Bar:
    """So many bytes of so many, at such a speed."""

    def __init__(self, label: str, completed: int, total: int, now: float) -> None:
        self._label = label
        self.completed, self.total = completed, total
        # Replaced, never changed: another thread draws.
        self._samples: tuple[tuple[float, int], ...] = ((now, completed),)

    @property
    def ended(self) -> bool:
        return self.completed >= self.total

    def update(self, completed: int, total: int, now: float) -> None:
        """As far as this by now. It may go back: a part that came wrong is fetched again."""
        self.completed, self.total = completed, total
        kept = self._samples
        if len(kept) > 1 and now - kept[-2][0] < SAMPLE:
            kept = kept[:-1]
        while len(kept) > 1 and kept[1][0] <= now - WINDOW:
            kept = kept[1:]
        self._samples = (*kept, (now, completed))

    def speed(self, now: float) -> float | None:
        """Bytes a second of late; None before it can be told."""
        samples = self._samples
        (since, before), (_, after) = samples[0], samples[-1]
        return max(0.0, (after - before) / (now - since)) if now - since >= FIRST_SPEED else None

    def text(self, width: int, now: float, *, ascii: bool = False) -> str:
        if self.ended:
            return self.last(width, now, ascii=ascii)
        speed = self.speed(now)
        return self._line(
            width,
            [
                f"{size(self.completed)}/{size(self.total)}",
                f"{size(int(speed))}/s" if speed is not None else "",
                remaining((self.total - self.completed) / speed) if speed else "",
            ],
            ascii,
        )

    def last(self, width: int, now: float, *, ascii: bool = False) -> str:
        return self._line(
            width, [size(self.total) if self.ended else f"{size(self.completed)}/{size(self.total)}"], ascii
        )

    def _line(self, width: int, parts: list[str], ascii: bool) -> str:
        done = 1.0 if self.ended else max(0.0, self.completed / self.total)
        head = f"{self._label}: {math.floor(100 * done):3}%"
        kept = list(COLUMNS)
        while kept and _room(width, head, kept) < NARROWEST_BAR:
            kept.pop()
        cells = min(_room(width, head, kept), WIDEST_BAR)
        if cells < NARROWEST_BAR:
            return _cut(head, width)
        full, left, right = ("#", "[", "]") if ascii else ("█", "▕", "▏")
        bar = (full * math.floor(cells * done)).ljust(cells)
        tail = "".join(
            " " + (part.ljust if self.ended else part.rjust)(column) for part, column in zip(parts, kept, strict=False)
        )
        return f"{head} {left}{bar}{right}{tail}".rstrip()


def _room(width: int, head: str, columns: list[int]) -> int:
    """Cells for the inside of the bar: the rest, less its two ends and the blank in front of each part."""
    return width - cell_len(head) - 3 - sum(column + 1 for column in columns)


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 3)) + "..."[:width]


def remaining(seconds: float) -> str:
    """`26s`, `3m05s`, `2h05m`; nothing for more than four days, which is no forecast."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return ""
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


class Display:
    """A context manager; within it, `show` takes the objects of a stream of progress."""

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._lines: dict[str, Line] = {}
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            refresh_per_second=DRAWN,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> Display:
        self._live.start()
        self._console.show_cursor()  # a signal, Ctrl-Z too, would leave the terminal without
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lines, self._lines = self._lines, {}
        self._live.stop()  # takes away what it had drawn
        for line in lines.values():
            self._stays(line)

    def show(self, message: Json) -> None:
        """The next `{status, digest?, total?, completed?}`: a line of its own for each status and digest."""
        status, total = str(message.get("status", "")), message.get("total")
        if not status:
            return
        key = f"{status} {message.get('digest', '')}"
        completed, now = message.get("completed") or 0, self._clock()
        line = self._lines.get(key)
        if isinstance(line, Bar):
            line.update(completed, total or line.total, now)
        elif line is None:
            self._settle(all_of_them=total is None)
            new = Spinner(status) if total is None else Bar(status, completed, total, now)
            self._lines = {**self._lines, key: new}

    def _settle(self, *, all_of_them: bool) -> None:
        """Lines that have ended stay above. A step without a size ends everything before it."""
        settled = {key: line for key, line in self._lines.items() if all_of_them or line.ended}
        self._lines = {key: line for key, line in self._lines.items() if key not in settled}
        for line in settled.values():
            self._stays(line)

    def _stays(self, line: Line) -> None:
        text = line.last(self._width, self._clock(), ascii=self._ascii)
        self._console.print(Text(text), soft_wrap=True)

    def _drawn(self) -> Text:
        lines = list(self._lines.values())[-max(1, self._console.height - 1) :]
        now = self._clock()
        return Text("\n").join(Text(line.text(self._width, now, ascii=self._ascii)) for line in lines)

    @property
    def _width(self) -> int:
        return max(1, self._console.width - 3)  # room for the `^C` that a terminal writes: a wrapped line would stay

    @property
    def _ascii(self) -> bool:
        return self._console.options.ascii_only
