"""Signing in: a registry that answers 401 says where a token is to be had, and our key asks for it there."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from .errors import RegistryError

__all__ = ["Challenge", "read_token"]

_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')
_NO_BODY: Final = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()
"""What stands for the empty body in the signed text."""


class _Answer(msgspec.Struct):
    token: str = ""
    access_token: str = ""
    """What some registries call it."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """`WWW-Authenticate: Bearer realm="…",service="…",scope="…"`."""

    realm: str
    service: str
    scopes: tuple[str, ...]

    @classmethod
    def parse(cls, header: str, url: str) -> Challenge:
        """Read the header of the answer that came from `url`.

        Raises RegistryError, also for a realm on another host: it would get our signature for the asking.
        """
        fields: Mapping[str, str] = dict(_FIELD.findall(header))
        realm = fields.get("realm", "")
        if header.lower().startswith("basic "):
            raise RegistryError(
                "the registry asks for a user name and a password, which cannot be given to it from here: use one that "
                "asks for a token, or for nothing"
            )
        if not header.lower().startswith("bearer ") or not realm:
            raise RegistryError("unauthorized: access denied")
        here, there = urlsplit(url).netloc, urlsplit(realm).netloc
        if here.lower() != there.lower():
            raise RegistryError(f'realm host "{there}" does not match original host "{here}"')
        return cls(realm, fields.get("service", ""), tuple(fields.get("scope", "").split()))

    def url(self) -> str:
        """Where the token is to be had; a fresh one each time."""
        query = [("service", self.service), *(("scope", scope) for scope in self.scopes)]
        query.append(("ts", str(int(datetime.now(UTC).timestamp()))))
        query.append(("nonce", secrets.token_urlsafe(16)))
        return f"{self.realm}{'&' if '?' in self.realm else '?'}{urlencode(query)}"

    @staticmethod
    def signed_text(url: str) -> bytes:
        """What the key has to sign for this URL."""
        return f"GET,{url},{_NO_BODY}".encode()


def read_token(body: bytes) -> str:
    """The token in the answer. Raises RegistryError."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError as error:
        raise RegistryError(f"the registry's token cannot be read: {error}") from None
    if not (token := answer.token or answer.access_token):
        raise RegistryError("unauthorized: access denied")
    return token
