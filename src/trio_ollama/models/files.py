"""Files of the store: whole or not there, never half written, and a clear error when the disk says no."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import StoreUnavailableError

__all__ = ["read_bounded", "remove", "replace_file", "store_errors", "sync_directory"]


@contextlib.contextmanager
def store_errors(action: str) -> Iterator[None]:
    """Turn any OSError inside into a StoreUnavailableError: `cannot <action>: <what the system said>`."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise StoreUnavailableError(f"cannot {action}: {error.strerror or error}{where}") from error


def read_bounded(path: Path, limit: int) -> bytes:
    """A small file's bytes. Raises ValueError beyond `limit` bytes or for anything but a file, OSError as it comes."""
    # Without O_NONBLOCK a pipe in a file's place would hold the caller for ever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"larger than {limit >> 20} MiB")
    return data


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that readers, and a crash, see the old bytes or the new ones. Raises OSError.

    The temporary file lies beside it under a name that no model can have (it begins with a dot).
    """
    descriptor, temporary = _temporary(path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        remove(Path(temporary))
        raise
    sync_directory(path.parent)


def _temporary(folder: Path) -> tuple[int, str]:
    """A new file in a directory that is made if need be, again if somebody tidies it away in between."""
    for last in (False, False, True):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)
        except FileNotFoundError:
            if last:
                raise
    raise AssertionError


def sync_directory(path: Path) -> None:
    """Make a rename in this directory survive a power cut; file systems that cannot are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove(path: Path) -> bool:
    """Unlink a file (a link itself, never what it points to); False if it was not there or is a directory."""
    try:
        path.unlink()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    return True
