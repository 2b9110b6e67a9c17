"""One writer of a store at a time: in this process, and among daemons that share the store."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["WriteLock"]

_PAUSE: Final = 0.005
_TRIES: Final = 2000
"""10 s in all: nobody holds the lock for longer than some disk work, save a process that was stopped."""

logger = logging.getLogger(__name__)


class WriteLock:
    """A lock on the store's directory itself, so that no file is left behind and a reader needs no right to write.

    It ends with the process that holds it. Ollama does not know of it; against Ollama stand the grace of prunings and
    the look at a blob's age before it goes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._threads = threading.Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Wait for the lock, at most 10 s (blocking). Yields whether it was had: else nothing may be removed."""
        with self._threads, contextlib.ExitStack() as stack:
            try:
                descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                yield True  # there is no store yet; what is wrong with the directory, the work itself will tell
                return
            stack.callback(os.close, descriptor)
            yield self._locked(descriptor)

    def _locked(self, descriptor: int) -> bool:
        pause = threading.Event()
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    return True  # a file system without locks
            else:
                return True
            pause.wait(_PAUSE)
        logger.warning("another process does not let go of the model store: unused blobs are kept")
        return False
