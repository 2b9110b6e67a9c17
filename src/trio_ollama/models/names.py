"""Model names: `[scheme://][host/][namespace/]model[:tag]`."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from .errors import InvalidNameError

__all__ = ["DEFAULT_HOST", "DEFAULT_NAMESPACE", "DEFAULT_TAG", "ModelName", "Source", "split_source"]

DEFAULT_HOST: Final = "registry.ollama.ai"
DEFAULT_NAMESPACE: Final = "library"
DEFAULT_TAG: Final = "latest"

# No part may begin with a dot or hold a slash: that alone keeps every path inside the store.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_MODEL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


@dataclass(frozen=True, slots=True)
class ModelName:
    """A complete, valid name; parts keep the spelling they were given (compare with `same` or `key`).

    Raises InvalidNameError when a part breaks the grammar, however it is made.
    """

    host: str
    namespace: str
    model: str
    tag: str

    def __post_init__(self) -> None:
        grammar = (_HOST, _NAMESPACE, _MODEL, _MODEL)
        if not all(pattern.fullmatch(part) for pattern, part in zip(grammar, self, strict=True)):
            raise InvalidNameError

    def __iter__(self) -> Iterator[str]:
        """The four parts, from the host down, as they nest on disk."""
        return iter((self.host, self.namespace, self.model, self.tag))

    def __str__(self) -> str:
        return self.short

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """Read a name, filling in default host, namespace and tag; a scheme is allowed and dropped.

        Raises InvalidNameError, also for a separator with nothing beside it (`a:`, `/a`).
        """
        host, namespace, tag = DEFAULT_HOST, DEFAULT_NAMESPACE, DEFAULT_TAG
        rest = text
        if rest.rfind(":") > rest.rfind("/"):
            rest, _, tag = rest.rpartition(":")
        rest, slash, model = rest.rpartition("/")
        if slash:
            rest, slash, namespace = rest.rpartition("/")
            if slash:
                scheme, separator, host = rest.rpartition("://")
                if separator and not _SCHEME.fullmatch(scheme):
                    raise InvalidNameError
        return cls(host, namespace, model, tag)

    @property
    def full(self) -> str:
        """All four parts: `host/namespace/model:tag`."""
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def short(self) -> str:
        """The shortest form that means the same; the tag is always shown."""
        text = f"{self.model}:{self.tag}"
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{text}"
        if self.namespace.lower() != DEFAULT_NAMESPACE:
            return f"{self.namespace}/{text}"
        return text

    @property
    def relative_path(self) -> PurePosixPath:
        """Where the manifest lies below `manifests/`."""
        return PurePosixPath(self.host, self.namespace, self.model, self.tag)

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for names that differ only in case."""
        return tuple(part.lower() for part in self)

    def same(self, other: ModelName) -> bool:
        """Whether both name the same model: case does not count."""
        return self.key == other.key


class Source(enum.Enum):
    """Where a request wants its model to run, by a suffix of the name."""

    ANY = "any"
    LOCAL = "local"
    CLOUD = "cloud"


def _strip_one(text: str) -> tuple[str, Source]:
    base, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        return text, Source.ANY
    match tag.lower():
        case "cloud":
            return base, Source.CLOUD
        case "local":
            return base, Source.LOCAL
        case lower if lower.endswith("-cloud"):
            return text[: -len("-cloud")], Source.CLOUD
    return text, Source.ANY


def split_source(text: str) -> tuple[str, Source]:
    """Take `:cloud`, `:local` or a tag's `-cloud` off a requested name, before it is parsed.

    Raises InvalidNameError when a name asks for both.
    """
    base, source = _strip_one(text)
    _, second = _strip_one(base)
    if source is not Source.ANY and second is not Source.ANY and second is not source:
        raise InvalidNameError(f'use either :local or :cloud, not both: "{text}"')
    return base, source
