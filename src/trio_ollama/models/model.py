"""A model as the store holds it: its manifest with every small layer read."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from . import manifest as media
from .blobs import Blobs
from .digest import Digest
from .errors import BrokenModelError
from .files import read_bounded
from .manifest import ConfigBlob, Layer, Manifest, Message
from .names import ModelName

__all__ = ["MAX_TEXT", "Entry", "Model", "load_model"]

MAX_TEXT: Final = 16 << 20
"""Bytes of all texts of a model together: template, system, licenses, parameters, messages, config."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A manifest that was found and read."""

    name: ModelName
    digest: str
    """sha256 of the manifest's bytes, 64 hex digits: changes whenever anything of the model does."""
    manifest: Manifest
    modified_at: datetime.datetime
    """Aware, in the machine's zone."""

    @property
    def size(self) -> int:
        """Bytes of all blobs."""
        return self.manifest.size


@dataclass(frozen=True, slots=True)
class Model:
    """Everything a request needs to know of its model, save what is inside the GGUF."""

    name: ModelName
    """As spelled on disk."""
    digest: str
    manifest: Manifest
    modified_at: datetime.datetime
    config: ConfigBlob = field(default_factory=ConfigBlob)
    weights_path: Path | None = None
    """None for kinds that have no GGUF: remote stubs, safetensors."""
    weights_digest: Digest | None = None
    parent: str = ""
    """The model this one was made from, or the name of the file."""
    projectors: tuple[Path, ...] = ()
    projector_digests: tuple[Digest, ...] = ()
    adapters: tuple[Path, ...] = ()
    draft: Path | None = None
    template: str = ""
    """Go template; empty if none is stored."""
    system: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    licenses: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all blobs."""
        return self.manifest.size

    @property
    def format(self) -> str:
        """`gguf` unless the config says otherwise."""
        return self.config.model_format or "gguf"

    @property
    def family(self) -> str:
        """The architecture, as the config names it."""
        return self.config.model_family or ""

    @property
    def families(self) -> tuple[str, ...]:
        """All families named in the config."""
        return tuple(self.config.model_families or ())


def load_model(entry: Entry, blobs: Blobs) -> Model:
    """Read a manifest's small layers and check that the large ones are there (blocking).

    Raises BrokenModelError naming what is missing or wrong.
    """
    return _Loader(entry, blobs).model()


class _Loader:
    def __init__(self, entry: Entry, blobs: Blobs) -> None:
        self.entry = entry
        self.blobs = blobs
        self.left = MAX_TEXT

    def model(self) -> Model:
        entry, manifest = self.entry, self.entry.manifest
        weights = manifest.of_type(media.MODEL)[-1:]  # the last one wins
        projectors = manifest.of_type(media.PROJECTOR)
        draft = self.files(media.DRAFT)[-1:]
        return Model(
            name=entry.name,
            digest=entry.digest,
            manifest=manifest,
            modified_at=entry.modified_at,
            config=self.decode(manifest.config, ConfigBlob, ConfigBlob()),
            weights_path=self.file(weights[0]) if weights else None,
            weights_digest=weights[0].parsed_digest if weights else None,
            parent=weights[0].source if weights else "",
            projectors=self.files(media.PROJECTOR),
            projector_digests=tuple(layer.parsed_digest for layer in projectors),
            adapters=self.files(media.ADAPTER),
            draft=draft[0] if draft else None,
            template=self.last_text(media.TEMPLATE, media.PROMPT),
            system=self.last_text(media.SYSTEM),
            params=self.last_json(media.PARAMS, dict[str, Any], {}),
            messages=self.last_json(media.MESSAGES, tuple[Message, ...], ()),
            licenses=tuple(self.text(layer) for layer in manifest.of_type(media.LICENSE)),
        )

    def broken(self, layer: Layer, why: str) -> BrokenModelError:
        name = self.entry.name.short
        return BrokenModelError(
            f"model '{name}' is damaged: blob {layer.digest} {why}; remove it, then pull or create it again"
        )

    def file(self, layer: Layer) -> Path:
        """Where it is. Its size is checked; to hash what may be many gigabytes is left to those who fetch them."""
        size = self.blobs.size(layer.parsed_digest)
        if size is None:
            raise self.broken(layer, "is missing")
        if size != layer.size:
            raise self.broken(layer, f"has {size} bytes instead of {layer.size}")
        return self.blobs.path(layer.parsed_digest)

    def files(self, media_type: str) -> tuple[Path, ...]:
        return tuple(self.file(layer) for layer in self.entry.manifest.of_type(media_type))

    def read(self, layer: Layer) -> bytes:
        try:
            data = read_bounded(self.file(layer), self.left)
        except (OSError, ValueError) as error:
            raise self.broken(layer, f"cannot be read: {error}") from error
        if Digest.of(data) != layer.parsed_digest:
            raise self.broken(layer, "is not what its digest says")
        self.left -= len(data)
        return data

    def text(self, layer: Layer) -> str:
        return self.read(layer).decode("utf-8", "replace")

    def decode(self, layer: Layer | None, form: type[T], default: T) -> T:
        if layer is None or not layer.digest:
            return default
        try:
            # `null` is how Go writes an empty map or list.
            return msgspec.json.decode(self.read(layer), type=form | None) or default
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self.broken(layer, f"is not what its type says: {error}") from error

    def last_text(self, *media_types: str) -> str:
        layers = self.entry.manifest.of_type(*media_types)
        return self.text(layers[-1]) if layers else ""

    def last_json(self, media_type: str, form: type[T], default: T) -> T:
        layers = self.entry.manifest.of_type(media_type)
        return self.decode(layers[-1], form, default) if layers else default
