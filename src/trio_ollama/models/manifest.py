"""Manifests and config blobs: what they hold, how they are read and written.

Unknown fields are ignored on reading. A manifest that came from elsewhere is never encoded again: its digest is the
sha256 of its bytes, so those bytes are what is kept.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .digest import Digest
from .errors import InvalidDigestError

__all__ = [
    "ADAPTER",
    "CONFIG",
    "DRAFT",
    "IMAGE_JSON",
    "LICENSE",
    "MANIFEST",
    "MESSAGES",
    "MODEL",
    "PARAMS",
    "PROJECTOR",
    "PROMPT",
    "SYSTEM",
    "TEMPLATE",
    "TENSOR",
    "ConfigBlob",
    "Layer",
    "Manifest",
    "Message",
    "decode_manifest",
    "encode",
]

MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG: Final = "application/vnd.docker.container.image.v1+json"
MODEL: Final = "application/vnd.ollama.image.model"
PROJECTOR: Final = "application/vnd.ollama.image.projector"
ADAPTER: Final = "application/vnd.ollama.image.adapter"
DRAFT: Final = "application/vnd.ollama.image.draft"
TEMPLATE: Final = "application/vnd.ollama.image.template"
PROMPT: Final = "application/vnd.ollama.image.prompt"
"""The old name of TEMPLATE."""
SYSTEM: Final = "application/vnd.ollama.image.system"
LICENSE: Final = "application/vnd.ollama.image.license"
PARAMS: Final = "application/vnd.ollama.image.params"
MESSAGES: Final = "application/vnd.ollama.image.messages"
TENSOR: Final = "application/vnd.ollama.image.tensor"
IMAGE_JSON: Final = "application/vnd.ollama.image.json"


class Layer(msgspec.Struct, frozen=True, omit_defaults=True, rename={"media_type": "mediaType", "source": "from"}):
    """One blob a model is made of."""

    media_type: str
    digest: str
    size: int
    source: str = ""
    """`from`: on the weights, the parent model or the name of the file they came from."""
    name: str = ""

    @property
    def parsed_digest(self) -> Digest:
        """Raises InvalidDigestError (never in a manifest that `decode_manifest` returned)."""
        return Digest.parse(self.digest)


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """The list of a model's blobs."""

    schema_version: int = 2
    media_type: str = MANIFEST
    config: Layer | None = None
    layers: tuple[Layer, ...] | None = ()
    """Null in a manifest that Go wrote without layers."""

    @property
    def blobs(self) -> tuple[Layer, ...]:
        """Layers, then the config: everything that must be there and is counted."""
        config = (self.config,) if self.config is not None and self.config.digest else ()
        return (*(self.layers or ()), *config)

    @property
    def size(self) -> int:
        """Bytes of all blobs, as the manifest says."""
        return sum(layer.size for layer in self.blobs)

    def of_type(self, *media_types: str) -> tuple[Layer, ...]:
        """The layers of these types, in the manifest's order."""
        return tuple(layer for layer in self.layers or () if layer.media_type in media_types)


class ConfigBlob(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a model without opening its weights."""

    model_format: str | None = None
    model_family: str | None = None
    model_families: tuple[str, ...] | None = None
    model_type: str | None = None
    """The parameter count as text."""
    file_type: str | None = None
    """The quantization as text."""
    renderer: str | None = None
    parser: str | None = None
    requires: str | None = None
    remote_host: str | None = None
    remote_model: str | None = None
    capabilities: tuple[str, ...] | None = None
    context_length: int | None = None
    embedding_length: int | None = None
    base_name: str | None = None
    draft: msgspec.Raw | None = None
    architecture: str | None = None
    os: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A stored message of the conversation a model begins with."""

    role: str = ""
    content: str = ""


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest and check that every digest in it is one. Raises ValueError with the reason."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        for layer in manifest.blobs:
            layer.parsed_digest  # noqa: B018 - raises; no path is ever made of an unchecked digest
            if layer.size < 0:
                raise ValueError(f"layer {layer.digest} has a negative size")
    except InvalidDigestError as error:
        raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not manifest.blobs:
        raise ValueError("no layers")
    return manifest


def encode(value: object) -> bytes:
    """JSON as the store holds it: compact, fields in declared order, no final newline."""
    return msgspec.json.encode(value)
