"""How the commands write values: pure functions, no terminal.

Sizes are decimal, times relative, counts short, as Ollama's own command line writes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

__all__ = [
    "columns",
    "count",
    "duration",
    "processor",
    "relative_time",
    "short_id",
    "size",
    "until",
]

GAP = "    "
FOREVER = timedelta(days=20 * 365)
"""A time further ahead than this counts as never coming."""


def columns(rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Left-aligned columns with four spaces between them, one line per row, each ended by a newline."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join((indent + GAP.join(map(str.ljust, row, widths))).rstrip() + "\n" for row in rows)


def size(count_of_bytes: int) -> str:
    """`4.7 GB`, `274 MB`: powers of 1000, one decimal below 10 unless it is whole."""
    value, unit = float(count_of_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    if value >= 10 or value == math.floor(value):
        return f"{math.floor(value)} {unit}"
    return f"{value:.1f} {unit}"


def count(number: int) -> str:
    """`8.0B`, `134.52M`, `7B`, `12K`: a count of parameters."""
    for value, unit, decimals in ((1e9, "B", 1), (1e6, "M", 2), (1e3, "K", 0)):
        if number >= value:
            scaled = number / value
            return f"{scaled:.{0 if scaled == math.floor(scaled) else decimals}f}{unit}"
    return str(number)


def short_id(digest: str) -> str:
    """The first 12 hex digits of a digest, with or without its `sha256:`."""
    return digest.removeprefix("sha256:")[:12]


def processor(total: int, on_gpu: int) -> str:
    """Where the bytes of a loaded model lie: `100% GPU`, `100% CPU`, `27%/73% CPU/GPU`."""
    if on_gpu == 0:
        return "100% CPU"
    if total == 0 or on_gpu > total:
        return "Unknown"
    if on_gpu == total:
        return "100% GPU"
    cpu = _rounded(100 * (total - on_gpu) / total)
    return f"{cpu}%/{100 - cpu}% CPU/GPU"


def relative_time(moment: datetime | None, now: datetime) -> str:
    """`3 days ago`, `4 minutes from now`; `Never` for None, `Forever` when it is decades ahead."""
    if moment is None:
        return "Never"
    if moment - now > FOREVER:
        return "Forever"
    if moment > now:
        return f"{_span(moment - now)} from now"
    return f"{_span(now - moment)} ago"


def until(moment: datetime | None, now: datetime) -> str:
    """When a loaded model leaves: a time that has passed means that it is being stopped."""
    if moment is not None and moment < now:
        return "Stopping..."
    return relative_time(moment, now)


def duration(nanoseconds: int) -> str:
    """`1m2.5s`, `340.5ms`, `12µs`: the shortest exact text, as Go writes durations."""
    if nanoseconds == 0:
        return "0s"
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    for unit, text in ((1, "ns"), (1_000, "µs"), (1_000_000, "ms")):
        if rest < 1000 * unit:
            return f"{sign}{_decimal(rest, unit)}{text}"
    minutes, rest = divmod(rest, 60 * 1_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 1_000_000_000)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, fraction = divmod(value, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{fraction:0{len(str(unit)) - 1}d}".rstrip("0")


def _span(length: timedelta) -> str:
    seconds = int(length.total_seconds())
    minutes = seconds // 60
    hours = _rounded(length.total_seconds() / 3600)
    if seconds < 1:
        return "Less than a second"
    if seconds == 1:
        return "1 second"
    if seconds < 60:
        return f"{seconds} seconds"
    if minutes == 1:
        return "About a minute"
    if minutes < 60:
        return f"{minutes} minutes"
    if hours == 1:
        return "About an hour"
    if hours < 48:
        return f"{hours} hours"
    days = hours // 24
    if days < 14:
        return f"{days} days"
    if days < 60:
        return f"{days // 7} weeks"
    if days < 2 * 365:
        return f"{days // 30} months"
    return f"{days // 365} years"


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)  # halves up: round() would send them to the even neighbour
