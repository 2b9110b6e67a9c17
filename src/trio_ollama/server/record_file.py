"""A file of JSON lines that is written beside the requests: it never makes one wait, and never makes one fail.

Whoever has a line to write hands it over and goes on. A task writes what has come in, whole lines only; what comes
faster than the disk takes it is left out and counted. A disk that takes nothing ends the recording, not the daemon.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

__all__ = ["QUEUED", "RecordFile"]

logger = logging.getLogger(__name__)

QUEUED: Final = 4096
"""Lines that may wait for the disk."""
LAST_WRITE: Final = 1.0
"""Seconds that the end of the daemon waits for a write that has begun."""


class RecordFile:
    """Appends to the file at `path`; a new one is readable by its owner alone. Raises `OSError` if it cannot be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Not blocking, so that a pipe nobody reads is an error at once and does not hold up the start.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._file = os.open(path, flags, 0o600)
        about = os.fstat(self._file)
        if not stat.S_ISREG(about.st_mode):
            os.close(self._file)
            raise OSError(f"cannot record into {str(path)!r}: it is not a regular file")
        self._lines: deque[bytes] = deque()
        self._left_out = 0
        self._wanted = trio.Event()
        self._turn = threading.Lock()
        """Whoever writes has it: the task's thread, or the end."""
        self._broken = False
        if about.st_size and os.pread(self._file, 1, about.st_size - 1) != b"\n":
            self._lines.append(b"\n")  # the daemon before this one was killed in the middle of a line

    def put(self, line: dict[str, Any]) -> None:
        """Have a line written soon. Synchronous; raises nothing."""
        if self._broken:
            return
        if len(self._lines) >= QUEUED:
            self._left_out += 1
            return
        self._mention_losses()
        self._lines.append(_encoded(line))
        self._wanted.set()

    async def run(self) -> None:
        """Write what is put, until cancelled. A write that hangs does not hold up the end (its thread is left)."""
        while not self._broken:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await trio.to_thread.run_sync(self.flush, abandon_on_cancel=True)

    def close(self) -> None:
        """Write what is left, at most `QUEUED` lines, and close the file; wait `LAST_WRITE` for a write before it."""
        if not self._turn.acquire(timeout=LAST_WRITE):
            return  # the disk hangs, and its thread has the file still
        try:
            self._mention_losses()
            self._flush()
            self._broken = True  # for a thread that was about to write
            os.close(self._file)
        finally:
            self._turn.release()

    def flush(self) -> None:
        """Write what is there. Blocks."""
        with self._turn:
            self._flush()

    def _flush(self) -> None:
        if not self._broken:
            self._write(b"".join(self._taken()))

    def _mention_losses(self) -> None:
        if self._left_out:
            self._lines.append(_encoded({"line": "left_out", "count": self._left_out}))
            self._left_out = 0

    def _taken(self) -> Iterator[bytes]:
        while self._lines:
            yield self._lines.popleft()  # in a thread, while more lines come

    def _write(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._broken = True
            logger.warning("cannot write to %s, recording ends here: %s", self._path, error)
            whole = data.rfind(b"\n", 0, written) + 1
            with suppress(OSError):
                os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))


def _encoded(line: dict[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"
