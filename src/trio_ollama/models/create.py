"""Making a model: from uploaded GGUF files, or from another model, with texts and parameters of its own.

Not yet: conversion of safetensors, quantizing, merging of split files, detection of known templates. What cannot be
done is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trio_ollama.templates import Template, TemplateError

from . import manifest as media
from .details import human_count
from .errors import CreateError, ModelNotFoundError
from .manifest import ConfigBlob, Layer, Manifest, Message
from .metadata import Metadata
from .model import Model
from .names import ModelName
from .parts import Part, check_paths, read_parts
from .store import Store

__all__ = ["CreateRequest", "Progress", "create"]


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the answer."""

    status: str
    digest: str = ""
    total: int = 0
    completed: int = 0


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """What is to be made; field names are those of the request's body."""

    model: str = ""
    source: str = ""
    files: Mapping[str, str] | None = None
    """Path to digest, as are `adapters` and `draft_files`."""
    adapters: Mapping[str, str] | None = None
    draft_files: Mapping[str, str] | None = None
    template: str = ""
    license: str | list[str] | None = None
    system: str = ""
    parameters: dict[str, Any] | None = None
    messages: list[Message] | None = None
    renderer: str = ""
    parser: str = ""
    requires: str = ""
    quantize: str = ""
    draft_quantize: str = ""
    remote_host: str = ""

    @property
    def licenses(self) -> tuple[str, ...]:
        """The new licenses, be it one text or several."""
        texts = [self.license] if isinstance(self.license, str) else self.license or []
        return tuple(text for text in texts if text)


_REFUSED: Final = {
    "quantize": "quantizing is not supported yet: create from a file that is quantized already",
    "draft_quantize": "quantizing is not supported yet: create from a file that is quantized already",
    "remote_host": "remote models are not supported",
}


def create(store: Store, request: CreateRequest, *, prune: bool = True) -> Iterator[Progress]:
    """Carry out a request step by step (blocking): the last status is `success`.

    All that can be wrong with a request is found before the first status, so it can be answered with a real HTTP
    status: CreateError, InvalidNameError, InvalidDigestError, BlobNotFoundError, ModelNotFoundError,
    BrokenModelError. Later only StoreUnavailableError and BlobNotFoundError (removed meanwhile) are left. Abandoning
    the iterator leaves no manifest; blobs written by then go with the next pruning.
    """
    name = _check(request)
    parent = _parent(store, request.source) if request.source else None
    parts = read_parts(store.blobs, request.files or {}, request.adapters or {}, request.draft_files or {})
    weights = [part for part in parts if part.media_type == media.MODEL]
    if parent is None and not weights:
        raise CreateError("no model file among the files")
    if parent is not None and weights:
        raise CreateError("a model file cannot be combined with 'from'")

    for _ in parts:
        yield Progress("parsing GGUF")
    if weights:
        yield Progress("validating GGUF model")
    maker = _Maker(store, _inherited(parent))
    for part in parts:
        maker.add_file(part)
    maker.add_texts(request, parent)
    config = maker.put(media.CONFIG, media.encode(_config(request, parent, parts)))
    for status in maker.statuses:
        yield Progress(status)
    yield Progress("writing manifest")
    store.write_manifest(name, Manifest(config=config, layers=tuple(maker.layers)), prune=prune)
    yield Progress("success")


def _check(request: CreateRequest) -> ModelName:
    """What can be refused by looking at the request alone."""
    name = ModelName.parse(request.model.strip())
    for files in (request.files, request.adapters, request.draft_files):
        check_paths(files or {})
    if request.draft_quantize and not request.draft_files:
        raise CreateError("--draft-quantize requires a DRAFT model")
    for field, text in _REFUSED.items():
        if getattr(request, field):
            raise CreateError(text)
    if not request.source and request.files is None:
        raise CreateError("neither 'from' or 'files' was specified")
    if not request.source and not request.files:
        raise CreateError("no files provided to convert")
    if len(request.adapters or {}) > 1:
        raise CreateError("only one adapter is currently supported")
    try:
        Template.parse(request.template)
    except TemplateError as error:
        raise CreateError(f"template error: {error}") from None
    return name


def _parent(store: Store, source: str) -> Model:
    try:
        return store.resolve(source)
    except ModelNotFoundError:
        raise ModelNotFoundError(source, f'model "{source}" not found, try pulling it first') from None


def _inherited(parent: Model | None) -> list[Layer]:
    if parent is None:
        return []
    source = parent.name.short
    return [msgspec.structs.replace(layer, source=source) for layer in parent.manifest.layers or ()]


class _Maker:
    """The layers of a manifest in the making, with what became of each."""

    def __init__(self, store: Store, layers: list[Layer]) -> None:
        self.store = store
        self.layers = layers
        self.statuses = [f"using existing layer {layer.digest}" for layer in layers]

    def add_file(self, part: Part) -> None:
        """Refer to an uploaded file."""
        self.layers.append(Layer(part.media_type, str(part.digest), part.metadata.file_size))
        self.statuses.append(f"using existing layer {part.digest}")

    def put(self, media_type: str, data: bytes) -> Layer:
        """Store a small blob."""
        digest, new = self.store.blobs.put(data)
        self.statuses.append(f"{'creating new' if new else 'using existing'} layer {digest}")
        return Layer(media_type, str(digest), len(data))

    def replace(self, media_types: tuple[str, ...], data: bytes) -> None:
        """Put a layer in the place of those that were inherited."""
        for layer in [layer for layer in self.layers if layer.media_type in media_types]:
            self.layers.remove(layer)
            self.statuses.remove(f"using existing layer {layer.digest}")
        self.layers.append(self.put(media_types[0], data))

    def add_texts(self, request: CreateRequest, parent: Model | None) -> None:
        """The request's own texts: what it says replaces what was inherited, licenses add up."""
        if request.template:
            self.replace((media.TEMPLATE, media.PROMPT), request.template.encode())
        if request.system:
            self.replace((media.SYSTEM,), request.system.encode())
        for text in request.licenses:
            self.layers.append(self.put(media.LICENSE, text.encode()))
        if request.parameters:
            parameters = {**(parent.params if parent is not None else {}), **request.parameters}
            self.replace((media.PARAMS,), media.encode(parameters))
        if request.messages:
            self.replace((media.MESSAGES,), media.encode(request.messages))


def _config(request: CreateRequest, parent: Model | None, parts: tuple[Part, ...]) -> ConfigBlob:
    """The config: the parent's, or what the model file says; families of all files are noted."""
    config = parent.config if parent is not None else _described(parts)
    own = {name: getattr(request, name) for name in ("renderer", "parser", "requires") if getattr(request, name)}
    families = dict.fromkeys((*(config.model_families or ()), *(part.metadata.architecture for part in parts)))
    return msgspec.structs.replace(
        config, **own, model_families=tuple(families) or None, architecture="amd64", os="linux"
    )


def _described(parts: tuple[Part, ...]) -> ConfigBlob:
    metadata: Metadata = next(part.metadata for part in parts if part.media_type == media.MODEL)
    return ConfigBlob(
        model_format="gguf",
        model_family=metadata.architecture,
        model_families=(metadata.architecture,),
        model_type=human_count(metadata.parameter_count),
        file_type=metadata.file_type,
    )
