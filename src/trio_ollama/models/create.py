"""Making a model: from uploaded GGUF files, or from another model, with texts and parameters of its own.

Not done: conversion of safetensors. What cannot be done is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import msgspec

from trio_ollama.templates import Template, TemplateError

from . import manifest as media
from .autodetect import Format, autodetect
from .config import config_of, told
from .create_request import CreateRequest, Progress
from .errors import CreateError, ModelNotFoundError
from .gguf import read_metadata
from .gguf_writing import merge
from .manifest import Layer, Manifest
from .model import Model
from .names import ModelName
from .parameters import check_parameters
from .parts import Part, check_paths, read_parts
from .quantization import mixture, source_type
from .quantize import check_library, quantize
from .store import Store

__all__ = ["SUCCESS", "CreateRequest", "Progress", "create"]

SUCCESS: Final = "success"
"""The last status of whatever ends well."""

_NO_DIGEST: Final = "0000000000000000000"
"""Of what is only in the making; clients tell bars apart by it."""


def create(store: Store, request: CreateRequest, *, prune: bool = True) -> Generator[Progress, None, None]:
    """Carry out a request step by step (blocking): the last status is `success`.

    All that can be wrong with a request is found before the first status, so it can be answered with a real HTTP
    status: CreateError, InvalidNameError, InvalidDigestError, BlobNotFoundError, ModelNotFoundError,
    BrokenModelError. Later only StoreUnavailableError and BlobNotFoundError (removed meanwhile) are left, and
    CreateError for parts of a split file that do not fit together. Closing the generator leaves no manifest; blobs
    written by then go with the next pruning.
    """
    name = _check(request)
    parameters = check_parameters(request.parameters or {})
    parts = read_parts(store.blobs, request.files or {}, request.adapters or {}, request.draft_files or {})
    weights = [part for part in parts if part.media_type == media.MODEL]
    if not request.source and not weights:
        raise CreateError("no model file among the files")
    if request.source and weights:
        raise CreateError("a model file cannot be combined with 'from'")
    # The last that can be wrong: a parent that is not there may be had.
    parent = _parent(store, request.source) if request.source else None
    if parent is not None and request.quantize:
        parts = (_inherited_weights(parent), *parts)
    wanted = {media.MODEL: request.quantize, media.DRAFT: request.draft_quantize}
    for part in parts:
        if wanted.get(part.media_type):
            _floats(part)

    for part in parts:
        for _ in part.pieces or (part.digest,):
            yield Progress("parsing GGUF")
    if weights and not request.quantize:
        yield Progress("validating GGUF model")
    whole = []
    for part in parts:
        if part.pieces:
            part = yield from _merged(store, part)
        if kind := wanted.get(part.media_type):
            part = yield from _quantized(store, part, kind)
        whole.append(part)
    maker = _Maker(store, _inherited(parent, whole))
    for part in whole:
        maker.add_file(part)
    known = _known(request, whole)
    if known is not None:
        maker.statuses.append(f"using autodetected template {known.name}")
        request = msgspec.structs.replace(request, template=known.template)
        parameters = {"stop": list(known.stop), **parameters}
    maker.add_texts(request, parent, parameters)
    config = maker.put(media.CONFIG, media.encode(config_of(request, parent, whole)))
    for status in maker.statuses:
        yield Progress(status)
    yield Progress("writing manifest")
    store.write_manifest(name, Manifest(config=config, layers=tuple(maker.layers)), prune=prune)
    yield Progress(SUCCESS)


def _known(request: CreateRequest, parts: list[Part]) -> Format | None:
    """The format of new weights' conversations, unless the request says how they are to be written."""
    if request.source or request.template or request.renderer or request.parser:
        return None
    return autodetect(next(part.metadata.chat_template for part in parts if part.media_type == media.MODEL))


def _merged(store: Store, part: Part) -> Generator[Progress, None, Part]:
    """The parts of a split file as one blob: llama.cpp finds parts by their files' names, which blobs do not have."""
    with store.blobs.writer() as writer:
        for done, total in merge([store.blobs.path(digest) for digest in part.pieces], writer):
            yield Progress("merging split GGUF", total=total, completed=done)
        digest = writer.commit()
    return Part(part.media_type, digest, read_metadata(store.blobs.path(digest)))


def _quantized(store: Store, part: Part, kind: str) -> Generator[Progress, None, Part]:
    """The part with smaller types, as a blob of its own."""
    to = mixture(kind)
    status = f"quantizing {_floats(part)} model to {to.name}"
    with store.blobs.writer() as writer:
        for done, total in quantize(store.blobs.path(part.digest), to, writer):
            yield Progress(status, digest=_NO_DIGEST, total=total, completed=done)
        digest = writer.commit()
    yield Progress("verifying conversion")
    return Part(part.media_type, digest, read_metadata(store.blobs.path(digest)))


def _floats(part: Part) -> str:
    """What it can be quantized from. Raises CreateError."""
    return source_type([tensor.type for tensor in part.metadata.tensors], part.metadata.file_type)


def _inherited_weights(parent: Model) -> Part:
    if parent.weights_path is None or parent.weights_digest is None:
        raise CreateError(f"'{parent.name.short}' has no weights that could be quantized")
    return Part(media.MODEL, parent.weights_digest, read_metadata(parent.weights_path))


def _check(request: CreateRequest) -> ModelName:
    """What can be refused by looking at the request alone."""
    name = ModelName.parse(request.model.strip())
    for files in (request.files, request.adapters, request.draft_files):
        check_paths(files or {})
    if request.draft_quantize and not request.draft_files:
        raise CreateError("--draft-quantize requires a DRAFT model")
    if request.remote_host:
        raise CreateError("remote models are not supported")
    for kind in filter(None, (request.quantize, request.draft_quantize)):
        mixture(kind)
        check_library()
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
    told(request.info or {})
    return name


def _parent(store: Store, source: str) -> Model:
    try:
        return store.resolve(source)
    except ModelNotFoundError:
        raise ModelNotFoundError(source, f'model "{source}" not found, try pulling it first') from None


def _inherited(parent: Model | None, parts: list[Part]) -> list[Layer]:
    """The parent's layers, save those of which the runner takes one only and there is a new one."""
    if parent is None:
        return []
    replaced = {part.media_type for part in parts} & {media.MODEL, media.PROJECTOR, media.DRAFT}
    source = parent.name.short
    return [
        msgspec.structs.replace(layer, source=source)
        for layer in parent.manifest.layers or ()
        if layer.media_type not in replaced
    ]


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

    def add_texts(self, request: CreateRequest, parent: Model | None, parameters: dict[str, Any]) -> None:
        """The request's own texts: what it says replaces what was inherited, licenses add up."""
        if request.template:
            self.replace((media.TEMPLATE, media.PROMPT), request.template.encode())
        if request.system:
            self.replace((media.SYSTEM,), request.system.encode())
        for text in request.licenses:
            self.layers.append(self.put(media.LICENSE, text.encode()))
        if parameters:
            self.replace((media.PARAMS,), media.encode({**(parent.params if parent is not None else {}), **parameters}))
        if request.messages:
            self.replace((media.MESSAGES,), media.encode(request.messages))
