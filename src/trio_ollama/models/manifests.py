"""The named half of the store: `manifests/<host>/<namespace>/<model>/<tag>`, exactly four levels."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .blobs import GRACE
from .errors import BrokenModelError, InvalidNameError, ModelNotFoundError, ModelsError, StoreUnavailableError
from .files import read_bounded, remove, replace_file, store_errors
from .manifest import decode_manifest
from .model import Entry
from .names import ModelName

__all__ = ["MAX_MANIFEST", "Manifests"]

MAX_MANIFEST: Final = 8 << 20
"""Bytes; a model of thousands of tensor layers stays below one MiB."""

logger = logging.getLogger(__name__)


class Manifests:
    """The manifests of one store. All methods block on the disk and raise StoreUnavailableError when it fails."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, name: ModelName) -> Path:
        """Where this name's manifest lies, or would, if it is spelled so."""
        return self.directory / name.relative_path

    def find(self, name: ModelName) -> ModelName | None:
        """The spelling on disk of a name, compared without regard to case; None if there is no such manifest.

        Of several that differ only in case the one typed exactly is preferred, part by part.
        """
        if self.path(name).is_file():
            return name  # spelled as on disk: no folder has to be listed
        with store_errors("read the model store"):
            return next(self._matches(self.directory, tuple(name), ()), None)

    def spelled(self, name: ModelName) -> ModelName:
        """How a name is written: like its manifest if there is one, else like those that share its first parts."""
        found = self.find(name)
        if found is not None:
            return found
        folder, parts = self.directory, list(name)
        with store_errors("read the model store"):
            for index, part in enumerate(parts):
                same = next((entry for entry in _children(folder, part) if _is_folder(entry)), None)
                if same is None:
                    break
                parts[index] = same.name
                folder /= same.name
        return ModelName(*parts)

    def read(self, name: ModelName) -> Entry:
        """Read a manifest, its name spelled as on disk. Raises ModelNotFoundError, BrokenModelError."""
        path = self.path(name)
        try:
            modified = datetime.datetime.fromtimestamp(path.stat().st_mtime).astimezone()
            data = read_bounded(path, MAX_MANIFEST)
            return Entry(name, hashlib.sha256(data).hexdigest(), decode_manifest(data), modified)
        except FileNotFoundError:
            raise ModelNotFoundError(name.short) from None
        except (OSError, ValueError, OverflowError) as error:
            raise BrokenModelError(f"the manifest of '{name.short}' cannot be used: {error}") from error

    def data(self, name: ModelName) -> bytes | None:
        """A manifest's bytes as they are; None if it is not there or cannot be read."""
        try:
            return read_bounded(self.path(name), MAX_MANIFEST)
        except (OSError, ValueError):
            return None

    def scan(self) -> tuple[tuple[Entry, ...], bool]:
        """Every readable manifest, and whether there are damaged ones, which are skipped with a warning."""
        entries: list[Entry] = []
        unreadable: list[OSError] = []
        damaged = False
        for parts, path in _walk(self.directory, 4, unreadable):
            try:
                entries.append(self.read(ModelName(*parts)))
            except ModelNotFoundError as error:
                if path.is_symlink():  # else it was deleted meanwhile
                    damaged = True
                    logger.warning("%s is skipped, a link to nowhere: %s", path, error)
            except InvalidNameError:
                if not parts[-1].startswith("."):
                    logger.warning("%s is skipped: its path is no model name", path)
            except ModelsError as error:
                damaged = True
                logger.warning("%s is skipped: %s", path, error)
        for failure in unreadable:
            damaged = True
            logger.warning("a part of the model store is skipped: %s", failure)
        return tuple(entries), damaged

    def write(self, name: ModelName, data: bytes) -> None:
        """Make a manifest appear, or replace it, in one step."""
        with store_errors("write to the model store"):
            replace_file(self.path(name), data)

    def remove(self, name: ModelName) -> None:
        """Remove a manifest and the directories that are empty without it."""
        with store_errors("remove the model"):
            path = self.path(name)
            remove(path)
            self._remove_empty(path.parent)

    def tidy(self, now: datetime.datetime) -> None:
        """Remove empty directories, and temporary files that a crash of ours left behind."""
        with store_errors("tidy the model store"):
            for folder, _, files in os.walk(self.directory, topdown=False):
                for path in (Path(folder, file) for file in files):
                    if path.name.startswith(".") and path.suffix == ".tmp":
                        with contextlib.suppress(FileNotFoundError):
                            if now.timestamp() - path.lstat().st_mtime > GRACE.total_seconds():
                                remove(path)
                self._remove_empty(Path(folder))

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.directory:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _matches(self, folder: Path, wanted: tuple[str, ...], found: tuple[str, ...]) -> Iterator[ModelName]:
        for entry in _children(folder, wanted[0]):
            if len(wanted) > 1 and _is_folder(entry):
                yield from self._matches(Path(entry.path), wanted[1:], (*found, entry.name))
            elif len(wanted) == 1 and not _is_folder(entry):
                host, namespace, model = found
                yield ModelName(host, namespace, model, entry.name)


def _children(folder: Path, name: str) -> list[os.DirEntry[str]]:
    """The entries of a directory that have this name in any case, the exact spelling first."""
    try:
        with os.scandir(folder) as entries:
            same = [entry for entry in entries if entry.name.lower() == name.lower()]
    except FileNotFoundError:
        return []
    return sorted(same, key=lambda entry: (entry.name != name, entry.name))


def _walk(
    folder: Path, depth: int, failures: list[OSError], parts: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Path]]:
    """Files exactly `depth` levels down, with the names on the way; links are followed, the depth ends every loop.

    What cannot be read is added to `failures`; only the top directory's own failure is raised.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        if not parts:
            raise StoreUnavailableError(f"cannot read the model store: {error.strerror} ({folder})") from error
        failures.append(error)
        return
    for entry in entries:
        here, is_folder = (*parts, entry.name), _is_folder(entry)
        if is_folder and depth > 1:
            yield from _walk(Path(entry.path), depth - 1, failures, here)
        elif not is_folder and depth == 1:
            yield here, Path(entry.path)
        elif not is_folder and entry.is_symlink():
            # Models may be behind it, on a disk that is not there now.
            failures.append(OSError(f"{entry.path} is a link to nowhere"))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a directory or leads to one; a link that leads nowhere, or to itself, is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False
