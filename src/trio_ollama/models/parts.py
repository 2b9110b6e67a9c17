"""The files a model is made of: which of them is what, by looking into them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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

_SPLIT: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE | re.DOTALL)
"""How llama.cpp names the parts of a model: it finds the others by the name of the first."""

_COMPANIONS: Final = (".json", "tokenizer.model", "chat_template.jinja")
_ONLY_ONE: Final = {media.MODEL: "model file is", media.ADAPTER: "adapter is currently", media.DRAFT: "draft is"}
_NOT_GGUF: Final = (".safetensors", ".pth", ".pt")


@dataclass(frozen=True, slots=True)
class Part:
    """An uploaded file, and what it is for."""

    media_type: str
    digest: Digest
    metadata: Metadata
    pieces: tuple[Digest, ...] = ()
    """The files of a split model, in order, `digest` and `metadata` being those of the first; else empty."""


@dataclass(frozen=True, slots=True)
class _File:
    path: str
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
    parts = [
        part
        for kind, given in ((None, files), (media.ADAPTER, adapters), (media.DRAFT, drafts))
        for part in _parts([_read(blobs, path, digest) for path, digest in _without_companions(given)], kind)
    ]
    for media_type, what in _ONLY_ONE.items():
        if sum(part.media_type == media_type for part in parts) > 1:
            raise CreateError(f"only one {what} supported")
    return tuple(sorted(parts, key=lambda part: part.media_type != media.MODEL))


def _without_companions(files: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """All but the small files that a folder has beside its GGUF files; alone, they are what somebody wants read."""
    weights = [(path, digest) for path, digest in files.items() if path.lower().endswith(".gguf")]
    others = [(path, digest) for path, digest in files.items() if not path.lower().endswith(_COMPANIONS)]
    return others if weights else files.items()


def _read(blobs: Blobs, path: str, digest_text: str) -> _File:
    digest = Digest.parse(digest_text)
    if not blobs.has(digest):
        raise BlobNotFoundError(digest_text)
    lower = path.lower()
    if lower.endswith(_NOT_GGUF):
        raise CreateError(
            f"{path}: this server runs GGUF files only: convert the model first, with llama.cpp's "
            "convert_hf_to_gguf.py, and create from the file it writes"
        )
    try:
        return _File(path, digest, read_metadata(blobs.path(digest)))
    except InvalidGgufError as error:
        if str(error) != "invalid file magic":
            raise CreateError(f"{path}: {error}") from error
        if lower.endswith(".gguf"):
            raise CreateError("supplied file was not in GGUF format") from error
        raise CreateError("unknown type") from error


def _parts(files: Iterable[_File], kind: str | None) -> Iterator[Part]:
    """The files, those of a split model gathered. Raises CreateError if one is missing or does not belong there."""
    splits: dict[tuple[str, int], dict[int, _File]] = {}
    for file in files:
        count, number = file.metadata.integer("split.count"), file.metadata.integer("split.no") + 1
        found = _SPLIT.fullmatch(file.path)
        if count <= 1 and (found is None or int(found[3]) <= 1):
            yield Part(kind or _purpose(file.metadata), file.digest, file.metadata)
            continue
        if found is None:
            raise CreateError(
                f"{file.path} is part {number} of {count} of a split GGUF: give it with all the others, under their "
                f"own names, which end in -{number:05}-of-{count:05}.gguf"
            )
        if (int(found[2]), int(found[3])) != (number, count):
            says = f"part {number} of {count}" if count > 1 else "no part of a split GGUF"
            raise CreateError(f"{file.path} is not what its name says: it is {says}")
        splits.setdefault((found[1], count), {})[number] = file
    for (name, count), pieces in splits.items():
        for number in range(1, count + 1):
            if number not in pieces:
                raise CreateError(f"a part of the split GGUF is missing: {name}-{number:05}-of-{count:05}.gguf")
        first = pieces[1]
        digests = tuple(pieces[number].digest for number in sorted(pieces))
        yield Part(kind or _purpose(first.metadata), first.digest, first.metadata, digests)


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
