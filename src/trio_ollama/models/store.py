"""The store: models by name over blobs by content.

A store that Ollama made is used as it is and stays usable by it. Nothing is removed unless every manifest could be
read, because only then is it known that nobody refers to it. All methods block on the disk; call them in a thread.
"""

from __future__ import annotations

import datetime
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .blobs import Blobs, BlobWriter
from .digest import Digest
from .errors import (
    BlobNotFoundError,
    BrokenModelError,
    CloudDisabledError,
    InvalidNameError,
    ModelNotFoundError,
    ModelsError,
)
from .files import read_bounded, store_errors
from .lock import WriteLock
from .manifest import Layer, Manifest, decode_manifest, encode
from .manifests import MAX_MANIFEST, Manifests
from .model import Entry, Model, load_model
from .names import ModelName, Source, split_source

__all__ = ["Entry", "Removal", "Store"]

_LOOKS: Final = 3
"""At a model that seems damaged, as long as its manifest changes between them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    """What a delete did."""

    name: ModelName
    """As it was spelled on disk."""
    unused: frozenset[Digest]
    """Blobs that were this model's alone; empty if other manifests could not be read. They are gone, save those that
    somebody may be about to use."""


class Store:
    """A directory with `manifests/` and `blobs/`; neither need exist before something is written.

    Every method may raise StoreUnavailableError.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifests = Manifests(root / "manifests")
        self.blobs = Blobs(root / "blobs")
        # Between "nobody refers to it" and the removal no manifest may appear. Held only for disk work, never while a
        # client is waited for.
        self._lock = WriteLock(root)

    # Reading

    def entry(self, name: ModelName) -> Entry:
        """Read a model's manifest only. Raises ModelNotFoundError, BrokenModelError."""
        found = self.manifests.find(name)
        if found is None:
            raise ModelNotFoundError(name.short)
        return self.manifests.read(found)

    def resolve(self, name: str | ModelName) -> Model:
        """The model of this name, as text in any form a request may give it.

        Raises InvalidNameError, ModelNotFoundError (with the name as given), CloudDisabledError, BrokenModelError.
        """
        source = Source.ANY
        if isinstance(name, str):
            base, source = split_source(name)
            parsed = ModelName.parse(base)
        else:
            parsed = name
        if source is Source.CLOUD:
            raise CloudDisabledError
        try:
            model = self.load(self.entry(parsed))
        except ModelNotFoundError:
            raise ModelNotFoundError(str(name)) from None
        if source is Source.LOCAL and model.config.remote_host:
            raise ModelNotFoundError(str(name))
        return model

    def load(self, entry: Entry) -> Model:
        """The model behind an entry of the list; the one of the same name, should it be replaced meanwhile.

        Raises BrokenModelError, ModelNotFoundError for one that is removed meanwhile.
        """
        for _ in range(_LOOKS):
            try:
                return load_model(entry, self.blobs)
            except BrokenModelError:
                # Its blobs may have gone together with its manifest: that is no damage.
                before, entry = entry, self.entry(entry.name)
                if entry.digest == before.digest:
                    raise
        return load_model(entry, self.blobs)

    def list(self) -> tuple[Entry, ...]:
        """Every readable manifest, newest first; damaged ones are skipped with a warning.

        Raises StoreUnavailableError if the store itself cannot be read; a store that is not there yet is empty.
        """
        entries, _ = self.manifests.scan()
        return tuple(sorted(entries, key=lambda entry: (entry.modified_at, entry.name.full), reverse=True))

    # Blobs, as requests spell them

    def blob_path(self, digest: str) -> Path:
        """Where a blob lies, or would. Raises InvalidDigestError."""
        return self.blobs.path(Digest.parse(digest))

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is there. Raises InvalidDigestError."""
        return self.blobs.has(Digest.parse(digest))

    def open_upload(self, digest: str) -> BlobWriter:
        """Begin to write a blob. Raises InvalidDigestError."""
        return self.blobs.writer(digest)

    def put_blob_bytes(self, data: bytes, media_type: str) -> Layer:
        """Keep a small blob; a layer that refers to it."""
        digest, _ = self.blobs.put(data)
        return Layer(media_type, str(digest), len(data))

    # Writing

    def write_manifest(self, name: ModelName, manifest: Manifest | bytes, *, prune: bool = True) -> Entry:
        """Make a model appear, or replace it, in one step; bytes are kept as they are.

        With `prune`, blobs that only the replaced manifest used are removed afterwards. Raises BlobNotFoundError when
        a blob is missing, BrokenModelError for bytes that are no manifest.
        """
        data = manifest if isinstance(manifest, bytes) else encode(manifest)
        try:
            layers = decode_manifest(data).blobs
        except ValueError as error:
            raise BrokenModelError(f"not a manifest: {error}") from error
        with self._lock.held() as alone:
            spelled = self.manifests.spelled(name)
            old = self._old(spelled) if prune and alone else None
            self._write(spelled, data, layers)
            if old is not None:
                self._remove_unused(old)
            return self.manifests.read(spelled)

    def copy(self, source: str | ModelName, destination: str | ModelName) -> None:
        """Give a model a second name; blobs are shared.

        Raises InvalidNameError saying which of the two, ModelNotFoundError, BrokenModelError, BlobNotFoundError.
        """
        names = [_parse(source, f'source "{source}"'), _parse(destination, f'destination "{destination}"')]
        with self._lock.held():
            found = self.manifests.find(names[0])
            if found is None:
                raise ModelNotFoundError(str(source), f'model "{source}" not found')
            layers = self.manifests.read(found).manifest.blobs  # a damaged manifest is not multiplied
            target = self.manifests.spelled(names[1])
            if target != found:
                with store_errors("read the model store"):
                    data = read_bounded(self.manifests.path(found), MAX_MANIFEST)
                self._write(target, data, layers)

    def delete(self, name: str | ModelName) -> Removal:
        """Remove a model and the blobs that no other model uses. A damaged manifest can be removed, too.

        Raises InvalidNameError, ModelNotFoundError.
        """
        parsed = _parse(name, f'name "{name}"')
        with self._lock.held() as alone:
            found = self.manifests.find(parsed)
            if found is None:
                raise ModelNotFoundError(str(name))
            old = self._old(found)
            self.manifests.remove(found)
            return Removal(found, self._remove_unused(old) if old is not None and alone else frozenset())

    # Keeping order

    def prepare(self) -> None:
        """Bring the file names of old stores to today's form; once, at start."""
        with self._lock.held():
            self.blobs.rename_old_names()

    def prune(self, now: datetime.datetime) -> tuple[str, ...]:
        """Remove blobs and partial files that nothing refers to and that are older than an hour, and empty directories.

        Only if all manifests can be read: returns the removed files' names, none if one manifest is damaged.
        """
        with self._lock.held() as alone:
            entries, damaged = self.manifests.scan()
            if damaged or not alone or not self.manifests.directory.is_dir():
                # Without manifests every blob would look unused: a directory that is not mounted must not cost them.
                level = logging.WARNING if damaged or self.blobs.any() else logging.DEBUG  # not for a new store
                logger.log(level, "unused blobs are kept: %s", "damaged manifests" if damaged else "no manifests")
                return ()
            removed = self.blobs.prune(
                {layer.parsed_digest for entry in entries for layer in entry.manifest.blobs}, now
            )
            self.manifests.tidy(now)
            return removed

    def _write(self, name: ModelName, data: bytes, layers: tuple[Layer, ...]) -> None:
        """Write a manifest whose blobs are there, and still are when it is. Raises BlobNotFoundError."""
        for layer in layers:
            self.blobs.touch(layer.parsed_digest)
        before = self.manifests.data(name)
        self.manifests.write(name, data)
        for layer in layers:
            if not self.blobs.has(layer.parsed_digest):
                # Another program, which knows no lock of ours, has removed it in between.
                if before is None:
                    self.manifests.remove(name)
                else:
                    self.manifests.write(name, before)
                raise BlobNotFoundError(layer.digest)

    def _old(self, name: ModelName) -> Entry | None:
        """The manifest that is about to go; None if it cannot be read or is not there."""
        try:
            return self.manifests.read(name)
        except ModelsError:
            return None

    def _remove_unused(self, old: Entry) -> frozenset[Digest]:
        """Remove the blobs of a manifest that is gone, if no other refers to them; tells which were its alone."""
        entries, damaged = self.manifests.scan()
        if damaged:
            return frozenset()
        digests = {layer.parsed_digest for layer in old.manifest.blobs}
        unused = digests - {layer.parsed_digest for entry in entries for layer in entry.manifest.blobs}
        for digest in unused:
            self.blobs.remove(digest, last_use=old.modified_at)
        return frozenset(unused)


def _parse(name: str | ModelName, what: str) -> ModelName:
    try:
        return name if isinstance(name, ModelName) else ModelName.parse(name)
    except InvalidNameError:
        raise InvalidNameError(f"{what} is invalid") from None
