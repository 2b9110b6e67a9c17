"""What a daemon's debug log tells of its requests: when each ended, and whether any holds something still."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.support.until import until

__all__ = ["DaemonLog", "Entry"]

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?:DEBUG|INFO|WARNING|ERROR) +", re.MULTILINE)
_REQUEST = re.compile(r"^request (\d+) ")
_OVER = re.compile(r"^request \d+ (?:is done with|loses|is refused|for .* (?:left after|is refused))")


@dataclass(frozen=True)
class Entry:
    """One entry; a runner's output comes as entries of several lines."""

    stamp: str
    text: str

    @property
    def at(self) -> datetime:
        """When it was written, to the millisecond."""
        return datetime.strptime(self.stamp, "%Y-%m-%d %H:%M:%S,%f").astimezone()


class DaemonLog:
    """The log of a `RealDaemon` from now on, or from the last `mark` on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = 0
        self.mark()

    def mark(self) -> None:
        """Look only at what is written from here on."""
        self._begin = self._path.stat().st_size

    @property
    def text(self) -> str:
        with self._path.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    def entries(self) -> Iterator[Entry]:
        """All entries since the mark, the last one perhaps cut short."""
        text = self.text
        stamps = list(_STAMP.finditer(text))
        ends = [*(stamp.start() for stamp in stamps), len(text)][1:]
        for stamp, end in zip(stamps, ends, strict=bool(stamps)):
            yield Entry(stamp[1], text[stamp.end() : end].rstrip("\n"))

    def matching(self, pattern: str) -> list[Entry]:
        """Each place where `pattern` is found, to the end of its line."""
        found = re.compile(f"(?:{pattern}).*", re.MULTILINE)
        return [Entry(entry.stamp, match[0]) for entry in self.entries() for match in found.finditer(entry.text)]

    async def wait_for(self, pattern: str, *, within: float, count: int = 1) -> Entry:
        """The `count`th place with `pattern`: looked for again and again, since a file cannot wake us."""
        found: list[Entry] = []

        def enough() -> bool:
            found[:] = self.matching(pattern)
            return len(found) >= count

        await until(enough, within, lambda: f"{len(found)} of {count} times {pattern!r} in\n{self.text[-10_000:]}")
        return found[count - 1]

    def open_requests(self) -> set[int]:
        """The scheduler's requests that have begun since the mark and are not over: they wait or hold a lease."""
        begun, over = self._requests()
        return begun - over

    def handlers_ended(self) -> bool:
        """True if every request that is over for the scheduler has its line in the access log, too."""
        return len(self.matching(r"^POST \S+ \d+ ")) >= len(self._requests()[1])

    def _requests(self) -> tuple[set[int], set[int]]:
        begun: set[int] = set()
        over: set[int] = set()
        for entry in self.entries():
            if match := _REQUEST.match(entry.text):
                (over if _OVER.match(entry.text) else begun).add(int(match[1]))
        return begun, over
