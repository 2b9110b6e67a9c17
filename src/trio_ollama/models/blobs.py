"""The content-addressed half of the store: `blobs/sha256-<64 hex>`."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import os
import re
import stat
import tempfile
from collections.abc import Container
from pathlib import Path
from types import TracebackType
from typing import Final

from .digest import Digest
from .errors import BlobNotFoundError, DigestMismatchError, InvalidDigestError
from .files import remove, store_errors, sync_directory

__all__ = ["GRACE", "BlobWriter", "Blobs"]

GRACE: Final = datetime.timedelta(hours=1)
"""Blobs younger than this are never pruned: a create or a pull may be about to refer to them."""

_RECENT: Final = datetime.timedelta(seconds=5)
"""A blob that was taken up so recently may be about to be named by a manifest that another program is writing."""

_OLD_NAME: Final = re.compile(r"sha256:[0-9a-fA-F]{64}")

logger = logging.getLogger(__name__)


class Blobs:
    """The blobs of one store. All methods block on the disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, digest: Digest) -> Path:
        """Where this blob lies, or would."""
        return self.directory / digest.file_name

    def has(self, digest: Digest) -> bool:
        """Whether the blob is there."""
        return self.path(digest).is_file()

    def size(self, digest: Digest) -> int | None:
        """Bytes of a blob; None if it is not there."""
        try:
            status = self.path(digest).stat()
        except OSError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def touch(self, digest: Digest) -> None:
        """Make a blob young again, which keeps it from being pruned. Raises BlobNotFoundError if it is not there."""
        if not self.has(digest):
            raise BlobNotFoundError(str(digest))
        # A store that is shared with Ollama's own user: its blobs are readable, their times not ours to set.
        with store_errors("use a blob of the model store"), contextlib.suppress(PermissionError):
            os.utime(self.path(digest))

    def put(self, data: bytes) -> tuple[Digest, bool]:
        """Keep these bytes; tells the digest, and whether the blob is new."""
        digest = Digest.of(data)
        if self.has(digest):
            self.touch(digest)
            return digest, False
        with self.writer(str(digest)) as writer:
            writer.write(data)
            writer.commit()
        return digest, True

    def writer(self, digest: str | None = None) -> BlobWriter:
        """Begin an upload; without a digest, a blob that is not known yet.

        Raises InvalidDigestError, StoreUnavailableError.
        """
        return BlobWriter(self, digest)

    def remove(self, digest: Digest, *, last_use: datetime.datetime | None = None) -> bool:
        """Delete one blob; False if it was not there.

        With `last_use`, the time when the manifest that used it was written: it stays, and is left to prunings, if
        somebody has taken it up since, and just now. That is how Ollama begins to make a model of it.
        """
        with store_errors("remove a blob of the model store"):
            if last_use is not None and self._taken_up(digest, last_use):
                logger.info("blob %s was taken up again: it is kept for now", digest)
                return False
            return remove(self.path(digest))

    def _taken_up(self, digest: Digest, since: datetime.datetime) -> bool:
        try:
            touched = _touched(self.path(digest))
        except FileNotFoundError:
            return False
        now = datetime.datetime.now(datetime.UTC)
        return since.timestamp() < touched and now.timestamp() - touched < _RECENT.total_seconds()

    def rename_old_names(self) -> None:
        """Bring `sha256:<hex>`, the names of old stores, to today's form. A name that is taken is left alone."""
        for entry in self._entries():
            if _OLD_NAME.fullmatch(entry.name):
                target = self.path(Digest.parse(entry.name))
                try:
                    if not target.exists():
                        os.rename(entry.path, target)
                except OSError as error:
                    logger.warning("cannot rename blob %s: %s", entry.path, error)

    def prune(self, used: Container[Digest], now: datetime.datetime) -> tuple[str, ...]:
        """Remove files that nothing refers to and that are older than GRACE, partial downloads included.

        Directories and younger files stay. Returns the names of what was removed.
        """
        removed = []
        for entry in self._entries():
            with contextlib.suppress(InvalidDigestError):
                digest = Digest.parse(entry.name)
                # Under an old name, or with capitals, it is the same once more.
                if digest in used and (entry.name == digest.file_name or not self.has(digest)):
                    continue
            try:
                age = now.timestamp() - self._last_write(entry)
                if age > GRACE.total_seconds() and remove(Path(entry.path)):
                    removed.append(entry.name)
            except OSError as error:
                logger.warning("cannot prune %s: %s", entry.path, error)
        return tuple(removed)

    def _last_write(self, entry: os.DirEntry[str]) -> float:
        """For a part that is done, that of the file it is a part of: its download may still be under way."""
        partial, _, number = entry.name.rpartition("-")
        if number.isdecimal() and partial.endswith("-partial"):
            with contextlib.suppress(FileNotFoundError):
                return (self.directory / partial).lstat().st_mtime
        return entry.stat(follow_symlinks=False).st_mtime

    def any(self) -> bool:
        """Whether there is a file at all."""
        return bool(self._entries())

    def _entries(self) -> list[os.DirEntry[str]]:
        with store_errors("read the model store"):
            try:
                with os.scandir(self.directory) as entries:
                    return [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
            except FileNotFoundError:
                return []


def _touched(path: Path) -> float:
    """When a file was last written or taken up; of a link, when that or what it leads to was. Raises OSError."""
    times = [path.lstat().st_mtime]
    with contextlib.suppress(OSError):
        times.append(path.stat().st_mtime)
    return max(times)


class BlobWriter:
    """An upload on its way into the store: nothing is there until `commit`, and then all of it.

    Use it as a context manager: leaving without a commit, for whatever reason, removes the temporary file.
    """

    def __init__(self, blobs: Blobs, digest: str | None) -> None:
        self._given = digest or ""
        self._digest = Digest.parse(digest) if digest is not None else None
        self._blobs = blobs
        self._hash = hashlib.sha256()
        with store_errors("write to the model store"):
            blobs.directory.mkdir(parents=True, exist_ok=True)
            # Upstream's own pattern: should we die here, either program's pruning knows it for refuse.
            descriptor, name = tempfile.mkstemp(prefix="sha256-", dir=blobs.directory)
        self._temporary = Path(name)
        self._file = open(descriptor, "wb")  # noqa: SIM115 - closed by commit and abort

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def write(self, data: bytes) -> None:
        """Append. Raises StoreUnavailableError (a full disk, say)."""
        self._hash.update(data)
        with store_errors("write to the model store"):
            self._file.write(data)

    def commit(self) -> Digest:
        """Check the digest and make the blob appear.

        Raises DigestMismatchError (nothing is kept) and StoreUnavailableError.
        """
        actual = Digest(self._hash.hexdigest())
        if self._digest is not None and actual != self._digest:
            self.abort()
            raise DigestMismatchError(self._given, str(actual))
        with store_errors("write to the model store"):
            self._file.flush()
            os.fchmod(self._file.fileno(), 0o644)
            os.fsync(self._file.fileno())
            self._file.close()
            # The same bytes, should another upload have been faster.
            os.replace(self._temporary, self._blobs.path(actual))
            sync_directory(self._blobs.directory)
        return actual

    def abort(self) -> None:
        """Forget the upload; harmless after `commit` and when repeated."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            remove(self._temporary)
