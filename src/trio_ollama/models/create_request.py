"""What a client may ask for when it makes a model, and how it is told of the progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .manifest import Message

__all__ = ["CreateRequest", "Progress"]


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
    info: dict[str, Any] | None = None
    """What the config is to say of the model, whatever its files say."""
    quantize: str = ""
    draft_quantize: str = ""
    remote_host: str = ""

    @property
    def licenses(self) -> tuple[str, ...]:
        """The new licenses, be it one text or several."""
        texts = [self.license] if isinstance(self.license, str) else self.license or []
        return tuple(text for text in texts if text)
