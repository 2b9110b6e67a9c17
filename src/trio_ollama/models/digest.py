"""Digests: `sha256:<64 hex>` in manifests and requests, `sha256-<64 hex>` as file names."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from .errors import InvalidDigestError

__all__ = ["Digest"]

_PATTERN: Final = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A sha256 by its 64 lower-case hex digits; the only thing blob paths are made of."""

    hex: str

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read either spelling. Raises InvalidDigestError."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise InvalidDigestError
        return cls(match[1].lower())

    @classmethod
    def of(cls, data: bytes) -> Digest:
        """The digest of these bytes."""
        return cls(hashlib.sha256(data).hexdigest())

    def __str__(self) -> str:
        return f"sha256:{self.hex}"

    @property
    def file_name(self) -> str:
        """The blob's name in `blobs/`."""
        return f"sha256-{self.hex}"
