"""Figures of a forecast, or of a recording: by model, all together, and one row for each combination of a sweep."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from trio_ollama.scheduler import Because

from .forecast import Forecast
from .trace import Seen, Trace

__all__ = ["ALL", "Row", "cell", "percentile", "planned", "recorded", "render"]

ALL: Final = "all"
"""The name of the row that has everything."""

_EVICTED: Final = (str(Because.EVICTED_FOR), str(Because.RELOAD_FOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Of one model. Seconds; None where nothing was seen."""

    name: str
    requests: int
    first_p50: float | None
    first_p95: float | None
    """Time to the first token (for embeddings: to the vectors), of all that lived to see it."""
    queue_p50: float | None
    queue_p95: float | None
    """Wait without the load of its own runner, of all that got one."""
    loads: int
    evicted: int
    """Runners that had to make room, or to be loaded with other options."""
    refused: int
    failed: int
    cancelled: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def recorded(trace: Trace) -> list[Row]:
    """What the recording itself says; nothing if it was written by hand."""
    loads = [load.model for load in trace.loads if not load.failed]
    return _rows(trace.seen, loads, trace.unloads) if trace.seen else []


def planned(result: Forecast) -> list[Row]:
    return _rows(result.seen, result.loads, result.unloads)


def _rows(seen: Sequence[Seen], loads: Sequence[str], unloads: Sequence[tuple[str, str]]) -> list[Row]:
    """One for each model, by name, and the one of all."""
    loaded = Counter(loads)
    evicted = Counter(model for model, why in unloads if why in _EVICTED)
    rows = [
        _row(name, [each for each in seen if each.model == name], loaded[name], evicted[name])
        for name in sorted({each.model for each in seen})
    ]
    return [*rows, _row(ALL, seen, loaded.total(), evicted.total())]


def _row(name: str, seen: Sequence[Seen], loads: int, evicted: int) -> Row:
    first = [each.first for each in seen if each.first is not None]
    queue = [each.queue for each in seen if each.queue is not None]
    ends = Counter(each.outcome for each in seen)
    return Row(
        name=name,
        requests=len(seen),
        first_p50=percentile(first, 50),
        first_p95=percentile(first, 95),
        queue_p50=percentile(queue, 50),
        queue_p95=percentile(queue, 95),
        loads=loads,
        evicted=evicted,
        refused=ends["refused"],
        failed=ends["failed"],
        cancelled=ends["cancelled"],
    )


_COLUMNS: Final[Mapping[str, str]] = {
    "requests": "requests",
    "first_p50": "first p50",
    "first_p95": "p95",
    "queue_p50": "queue p50",
    "queue_p95": "p95",
    "loads": "loads",
    "evicted": "evicted",
    "refused": "refused",
    "failed": "failed",
    "cancelled": "cancelled",
}


def render(rows: Iterable[tuple[str, Row]]) -> str:
    """A table for people; each row with the words that it begins with."""
    lines = [["", *_COLUMNS.values()]]
    lines += [[words, *(cell(getattr(row, field)) for field in _COLUMNS)] for words, row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(words.ljust(width) if not column else words.rjust(width) for column, (words, width) in pairs).rstrip()
        for pairs in (list(enumerate(zip(line, widths, strict=True))) for line in lines)
    )


def cell(value: float | None) -> str:
    """A count, or seconds in few digits."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"
