"""The sha256 of a file that is still being fetched: it follows the bytes that are there from the beginning on.

So the check of a blob of many gigabytes is over a moment after its last byte has come. What an earlier download left
is hashed, too, while the rest is fetched.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

import trio

from .errors import RegistryError
from .partial import Partial
from .parts import frontier

__all__ = ["Verifier"]

STEP: Final = 4 << 20
"""Bytes that are hashed in one visit to a thread: some milliseconds, so that a cancel is soon seen."""
LOOK: Final = 0.01
"""Seconds between two looks at how far it is: the threads that write do not tell."""
SYNC: Final = 32 << 20
"""Bytes after which the disk is given its share, so that little is left to be written at the end."""


class Verifier:
    """Hashes one partial file. `advance` is to be called when a part of it is done."""

    def __init__(self, partial: Partial, total: int, limiter: trio.CapacityLimiter) -> None:
        self._partial = partial
        self._total = total
        self._limiter = limiter
        self._hash = hashlib.sha256()
        self._buffer = memoryview(bytearray(1 << 20))
        self._done = 0
        self._spent = 0.0
        """Seconds of hashing."""
        self._more = trio.Event()
        self._hashed = trio.Event()

    def advance(self) -> None:
        """There may be more to hash."""
        self._more.set()

    @property
    def speed(self) -> float:
        """Bytes a second that it can take; without a limit until it has hashed some."""
        return self._done / self._spent if self._spent else math.inf

    async def run(self) -> str:
        """The digest in hex, once all of the file is there. Raises StoreUnavailableError."""
        while self._done < self._total:
            there = frontier(self._partial.parts)
            if there - self._done < STEP and there < self._total:
                with trio.move_on_after(LOOK):
                    await self._more.wait()
                self._more = trio.Event()
                continue
            began = trio.current_time()
            await trio.to_thread.run_sync(self._hash_to, min(there, self._done + STEP), limiter=self._limiter)
            self._spent += trio.current_time() - began
            self._hashed.set()
        return self._hash.hexdigest()

    async def sync(self) -> None:
        """Beside `run`, give the disk its share: hashing does not wait for it. Raises StoreUnavailableError."""
        synced, disk = 0, trio.CapacityLimiter(1)
        while self._done < self._total:
            if self._done - synced >= SYNC:
                synced = self._done
                # Abandoned when cancelled: a slow disk must not hold a cancel up.
                await trio.to_thread.run_sync(self._partial.sync, abandon_on_cancel=True, limiter=disk)
            else:
                await self._hashed.wait()
                self._hashed = trio.Event()

    def _hash_to(self, end: int) -> None:
        while self._done < end:
            count = self._partial.read(self._buffer[: end - self._done], self._done)
            if not count:
                raise RegistryError("a file became shorter while it was fetched")
            self._hash.update(self._buffer[:count])
            self._done += count
