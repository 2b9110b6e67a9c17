"""The store: models by name over blobs by content.

A store that Ollama made is used as it is and stays usable by it. Nothing is removed unless every manifest could be
read, because only then is it known that nobody refers to it. All methods block on the disk; call them in a thread.
"""

from __future__ import annotations

import datetime
import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from .blobs import Blobs, BlobWriter
from .digest import Digest
from .errors import BrokenModelError, CloudDisabledError, InvalidNameError, ModelNotFoundError, ModelsError
from .files import read_bounded, store_errors
from .manifest import Layer, Manifest, decode_manifest, encode
from .manifests import MAX_MANIFEST, Manifests
from .model import Entry, Model, load_model
from .names import ModelName, Source, split_source

__all__ = ["Entry", "Removal", "Store"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Removal:
    """What a delete did."""

    name: ModelName
    """As it was spelled on disk."""
    unused: frozenset[Digest]
    """Blobs that were this model's alone and are gone; empty if other manifests could not be read."""


class Store:
    """A directory with `manifests/` and `blobs/`; neither need exist before something is written.

    Every method may raise StoreUnavailableError.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifests = Manifests(root / "manifests")
        self.blobs = Blobs(root / "blobs")
        # One writer at a time: between "nobody refers to it" and the removal no manifest may appear. Held only for
        # disk work, never while a client is waited for.
        self._writing = threading.Lock()

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
        """The model behind an entry of the list. Raises BrokenModelError."""
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
        with self._writing:
            for layer in layers:
                self.blobs.touch(layer.parsed_digest)
            spelled = self.manifests.spelled(name)
            old = self._digests(spelled) if prune else set()
            self.manifests.write(spelled, data)
            self._remove_unused(old)
            return self.manifests.read(spelled)

    def copy(self, source: str | ModelName, destination: str | ModelName) -> None:
        """Give a model a second name; blobs are shared.

        Raises InvalidNameError saying which of the two, ModelNotFoundError, BrokenModelError.
        """
        names = [_parse(source, f'source "{source}"'), _parse(destination, f'destination "{destination}"')]
        with self._writing:
            found = self.manifests.find(names[0])
            if found is None:
                raise ModelNotFoundError(str(source), f'model "{source}" not found')
            self.manifests.read(found)  # a damaged manifest is not multiplied
            target = self.manifests.spelled(names[1])
            if target != found:
                with store_errors("read the model store"):
                    data = read_bounded(self.manifests.path(found), MAX_MANIFEST)
                self.manifests.write(target, data)

    def delete(self, name: str | ModelName) -> Removal:
        """Remove a model and the blobs that no other model uses. A damaged manifest can be removed, too.

        Raises InvalidNameError, ModelNotFoundError.
        """
        parsed = _parse(name, f'name "{name}"')
        with self._writing:
            found = self.manifests.find(parsed)
            if found is None:
                raise ModelNotFoundError(str(name))
            digests = self._digests(found)
            self.manifests.remove(found)
            return Removal(found, self._remove_unused(digests))

    # Keeping order

    def prepare(self) -> None:
        """Bring the file names of old stores to today's form; once, at start."""
        with self._writing:
            self.blobs.rename_old_names()

    def prune(self, now: datetime.datetime) -> tuple[str, ...]:
        """Remove blobs and partial files that nothing refers to and that are older than an hour, and empty directories.

        Only if all manifests can be read: returns the removed files' names, none if one manifest is damaged.
        """
        with self._writing:
            entries, damaged = self.manifests.scan()
            if damaged or not self.manifests.directory.is_dir():
                # Without manifests every blob would look unused: a directory that is not mounted must not cost them.
                level = logging.WARNING if damaged or self.blobs.any() else logging.DEBUG  # not for a new store
                logger.log(level, "unused blobs are kept: %s", "damaged manifests" if damaged else "no manifests")
                return ()
            removed = self.blobs.prune(
                {layer.parsed_digest for entry in entries for layer in entry.manifest.blobs}, now
            )
            self.manifests.tidy(now)
            return removed

    def _digests(self, name: ModelName) -> set[Digest]:
        """The blobs a name refers to; none if it cannot be read or is not there."""
        try:
            return {layer.parsed_digest for layer in self.manifests.read(name).manifest.blobs}
        except ModelsError:
            return set()

    def _remove_unused(self, digests: set[Digest]) -> frozenset[Digest]:
        """Remove those of these blobs that no manifest refers to."""
        if not digests:
            return frozenset()
        entries, damaged = self.manifests.scan()
        if damaged:
            return frozenset()
        unused = digests - {layer.parsed_digest for entry in entries for layer in entry.manifest.blobs}
        for digest in unused:
            self.blobs.remove(digest)
        return frozenset(unused)


def _parse(name: str | ModelName, what: str) -> ModelName:
    try:
        return name if isinstance(name, ModelName) else ModelName.parse(name)
    except InvalidNameError:
        raise InvalidNameError(f"{what} is invalid") from None
