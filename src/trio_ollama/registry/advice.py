"""What to do about a registry whose TLS fails: no other attempt will mend that."""

from __future__ import annotations

import re
from typing import Final

from .errors import ConnectionFailedError, RegistryError

__all__ = ["advised"]

_REFUSED: Final = re.compile(r"\[SSL: CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (.+?)\.?(?: \(_ssl|$)")
_OTHER_NAME: Final = "certificate is not valid for"
_NO_AUTHORITY: Final = ("self-signed", "self signed", "issuer certificate", "first certificate")
_NO_TLS: Final = re.compile(r"\[SSL: (?:WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG)\]")
"""What OpenSSL calls an answer that is no TLS, by its version."""


def advised(error: ConnectionFailedError) -> RegistryError:
    """The error, or what to say in its place: in one line, with what helps."""
    said = str(error)
    where = said.partition(": ")[0]
    if refused := _REFUSED.search(said):
        why, advice = refused[1], ""
        if _OTHER_NAME in why:
            why = f"it{why.partition('certificate')[2]}"
            advice = " (call the registry by the name that its certificate is for)"
        elif any(text in why for text in _NO_AUTHORITY):
            advice = " (if you trust who signed it, start the server with SSL_CERT_FILE=<that authority's certificate>)"
        return RegistryError(f"{where}: its certificate is refused, {why}{advice}")
    if _NO_TLS.search(said):
        return RegistryError(f'{where}: no HTTPS is spoken there (--insecure, or "insecure": true, is plain HTTP)')
    return error
