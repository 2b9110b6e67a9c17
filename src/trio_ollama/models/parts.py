"""The files a model is made of: which of them is what, by looking into them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from . import manifest as media
from .blobs import Blobs
from .digest import Digest
from .errors import BlobNotFoundError, CreateError, InvalidGgufError
from .gguf import read_metadata
from .metadata import Metadata

__all__ = ["Part", "check_paths", "read_parts"]

_SPLIT: Final = re.compile(r"-\d{5}-of-\d{5}\.gguf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """An uploaded file, and what it is for."""

    media_type: str
    digest: Digest
    metadata: Metadata


def check_paths(files: Mapping[str, str]) -> None:
    """Raises CreateError for a path that leads outside, InvalidDigestError for a digest that is none."""
    for path, digest in files.items():
        # Nothing is opened by these paths, but whoever sends such a one expects something else of it.
        if not path or path.startswith("/") or ".." in PurePosixPath(path).parts or "\0" in path:
            raise CreateError("file path must be relative")
        Digest.parse(digest)


def read_parts(
    blobs: Blobs, files: Mapping[str, str], adapters: Mapping[str, str], drafts: Mapping[str, str]
) -> tuple[Part, ...]:
    """Look into the files (path to digest): the model first, then projectors, adapters and drafts (blocking).

    Raises CreateError, InvalidDigestError, BlobNotFoundError.
    """
    parts = [_read(blobs, path, digest, None) for path, digest in files.items()]
    parts += [_read(blobs, path, digest, media.ADAPTER) for path, digest in adapters.items()]
    parts += [_read(blobs, path, digest, media.DRAFT) for path, digest in drafts.items()]
    if sum(part.media_type == media.MODEL for part in parts) > 1:
        raise CreateError("only one model file is supported")
    if sum(part.media_type == media.ADAPTER for part in parts) > 1:
        raise CreateError("only one adapter is currently supported")
    return tuple(sorted(parts, key=lambda part: part.media_type != media.MODEL))


def _read(blobs: Blobs, path: str, digest_text: str, media_type: str | None) -> Part:
    digest = Digest.parse(digest_text)
    if not blobs.has(digest):
        raise BlobNotFoundError(digest_text)
    lower = path.lower()
    if lower.endswith(".safetensors"):
        raise CreateError("converting safetensors is not supported yet: create from a GGUF file")
    if _SPLIT.search(lower):
        raise CreateError(f"split GGUF files are not supported yet, merge them first: {path}")
    try:
        metadata = read_metadata(blobs.path(digest))
    except InvalidGgufError as error:
        if str(error) != "invalid file magic":
            raise CreateError(f"{path}: {error}") from error
        if lower.endswith(".gguf"):
            raise CreateError("supplied file was not in GGUF format") from error
        raise CreateError("unknown type") from error
    if metadata.integer("split.count") > 1:
        raise CreateError(f"split GGUF files are not supported yet, merge them first: {path}")
    return Part(media_type or _purpose(metadata), digest, metadata)


def _purpose(metadata: Metadata) -> str:
    kind = metadata.text("general.type").lower()
    if kind == "adapter":
        return media.ADAPTER
    encoder_only = (
        metadata.arch_key("vision.block_count") in metadata.values
        and metadata.arch_key("block_count") not in metadata.values
    )
    if kind in ("projector", "mmproj") or metadata.architecture == "clip" or encoder_only:
        return media.PROJECTOR
    return media.MODEL
