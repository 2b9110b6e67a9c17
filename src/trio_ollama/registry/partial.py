"""The file that a blob is fetched into: locked against other daemons, resumed, checked, and only then given its name.

All methods block on the disk; errors are StoreUnavailableError.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from trio_ollama.models.blobs import Blobs
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import StoreUnavailableError
from trio_ollama.models.files import remove, store_errors, sync_directory

from .limits import Limits
from .parts import Part, PartFiles, plan

__all__ = ["Partial", "free_space", "partial_path", "remove_leftovers", "write_all"]

WANTED: Final = 16
"""Parts of one blob, as far as their sizes allow: one for each connection. A registry reads ahead for each request, so
many small ones cost it twice as much."""

_WRITING: Final = "write to the model store"


class Partial:
    """A partial file that is open, and ours: no other daemon of ours has it. `close` gives it up, resumable."""

    def __init__(self, blobs: Blobs, digest: Digest, descriptor: int, limits: Limits) -> None:
        self.path = partial_path(blobs, digest)
        self.parts: list[Part] = []
        self._blobs = blobs
        self._digest = digest
        self._descriptor = descriptor
        self._files = PartFiles(self.path)
        self._limits = limits
        self._saved: dict[int, int] = {}

    @classmethod
    def open(cls, blobs: Blobs, digest: Digest, limits: Limits) -> Partial | None:
        """Open, or make, the partial file of a blob; None while another process is downloading to it."""
        path = partial_path(blobs, digest)
        with store_errors(_WRITING):
            blobs.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                # Held by the open file, so it ends with the process, however that ends.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The file may have got its name, or been removed, between the two calls.
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return cls(blobs, digest, descriptor, limits)
            except (BlockingIOError, FileNotFoundError):
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        return None

    def resume(self, total: int) -> None:
        """Find out what is there of the `total` bytes, and make room for the rest.

        A disk that is too small is told now and not after hours.
        """
        with store_errors(_WRITING):
            status = os.fstat(self._descriptor)
            self.parts = self._files.load(total) if status.st_size == total else []
            if not self.parts:
                self._files.remove()
                os.ftruncate(self._descriptor, 0)
                os.ftruncate(self._descriptor, total)
                self.parts = plan(total, self._limits.part, WANTED)
                for part in self.parts:
                    self._files.save(part)
            self._saved = {part.number: part.completed for part in self.parts}
            free = free_space(self._descriptor)
        needed = sum(part.left for part in self.parts)
        if needed > free:
            raise StoreUnavailableError(
                f"cannot {_WRITING}: {needed} bytes are needed, {free} are free ({self._blobs.directory})"
            )

    def write(self, part: Part, data: memoryview) -> None:
        """Put the next bytes of a part in their place."""
        with store_errors(_WRITING):
            write_all(self._descriptor, data, part.position)
            self._advance(part, part.completed + len(data))

    def write_at(self, offset: int, data: memoryview) -> None:
        """Put bytes of a stream that began with the blob's first byte in their place, whatever parts they belong to."""
        with store_errors(_WRITING):
            write_all(self._descriptor, data, offset)
            for part in self.parts:
                if part.offset <= offset + len(data) and offset < part.end:
                    self._advance(part, max(part.completed, min(offset + len(data), part.end) - part.offset))

    def read(self, view: memoryview, offset: int) -> int:
        """Fill `view` with what is at this place."""
        with store_errors("read the model store"):
            return os.preadv(self._descriptor, [view], offset)

    def sync(self) -> None:
        """Bring what was written so far to the disk, on a descriptor of its own: it may outlast `close`."""
        with store_errors(_WRITING):
            descriptor = os.dup(self._descriptor)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def commit(self) -> None:
        """Give the file, which was found to be the blob, its name."""
        with store_errors(_WRITING):
            os.fchmod(self._descriptor, 0o644)
            os.fsync(self._descriptor)
            os.replace(self.path, self._blobs.path(self._digest))
            # After the name is there: a kill in between must not cost the whole download.
            self._files.remove()
            sync_directory(self._blobs.directory)

    def discard(self) -> None:
        """Remove all that was fetched."""
        with store_errors(_WRITING):
            self._files.remove()
            remove(self.path)

    def close(self) -> None:
        """Save how far all parts are, and let others have the file. Parts that are whole have been saved."""
        try:
            with store_errors(_WRITING):
                for part in self.parts:
                    if part.completed != self._saved[part.number]:
                        self._save(part)
        finally:
            os.close(self._descriptor)

    def _advance(self, part: Part, completed: int) -> None:
        part.completed = completed
        if completed - self._saved[part.number] >= self._limits.save_every or not part.left:
            self._save(part)

    def _save(self, part: Part) -> None:
        self._files.save(part)
        self._saved[part.number] = part.completed


def partial_path(blobs: Blobs, digest: Digest) -> Path:
    """Where a blob is fetched to."""
    return blobs.directory / f"{digest.file_name}-partial"


def remove_leftovers(blobs: Blobs, digest: Digest) -> None:
    """Remove the part files of a blob that is there: of a daemon that was killed right after its name appeared."""
    with store_errors(_WRITING):
        PartFiles(partial_path(blobs, digest)).remove()


def free_space(descriptor: int) -> int:
    """Bytes that the file's disk has left for us."""
    disk = os.fstatvfs(descriptor)
    return disk.f_bavail * disk.f_frsize


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at this place."""
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
