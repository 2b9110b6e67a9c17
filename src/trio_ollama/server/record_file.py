"""A file of JSON lines that is written beside the requests: it never makes one wait, and never makes one fail.

Whoever has a line to write hands it over and goes on. A task writes what has come in, whole lines only; what comes
faster than the disk takes it is left out and counted. A disk that takes nothing ends the recording, not the daemon.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

__all__ = ["QUEUED", "RecordFile"]

logger = logging.getLogger(__name__)

QUEUED: Final = 4096
"""Lines that may wait for the disk."""


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
        self._writing = False
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
        if self._left_out:
            self._lines.append(_encoded({"line": "left_out", "count": self._left_out}))
            self._left_out = 0
        self._lines.append(_encoded(line))
        self._wanted.set()

    async def run(self) -> None:
        """Write what is put, until cancelled. A write that hangs does not hold up the end (its thread is left)."""
        while not self._broken:
            await self._wanted.wait()
            self._wanted = trio.Event()
            self._writing = True
            await trio.to_thread.run_sync(self._write, self._taken(), abandon_on_cancel=True)
            self._writing = False

    def close(self) -> None:
        """Write what is left, at most `QUEUED` lines, and close the file."""
        if self._writing:
            return  # the thread has the file still
        if not self._broken:
            self._write(self._taken())
        os.close(self._file)

    def _taken(self) -> bytes:
        data = b"".join(self._lines)
        self._lines.clear()
        return data

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
