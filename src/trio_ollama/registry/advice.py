"""What to say of a registry that is not reached: why, in words for whoever waits, and what helps."""

from __future__ import annotations

import re
from typing import Final

from .errors import ConnectionFailedError, RegistryError

__all__ = ["advised"]

_ADDRESS: Final = re.compile(r"Error connecting to \(.*?\): ")
_HINTS: Final = {
    "Connection refused": "no registry listens there",
    "Name or service not known": "check the host in the model's name, and the network",
    "Temporary failure in name resolution": "check the network",
    "Network is unreachable": "check the network",
    "No route to host": "check the network",
}

_REFUSED: Final = re.compile(r"\[SSL: CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (.+?)\.?(?: \(_ssl|$)")
_OTHER_NAME: Final = "certificate is not valid for"
_NO_AUTHORITY: Final = ("self-signed", "self signed", "issuer certificate", "first certificate")
_NO_TLS: Final = re.compile(r"\[SSL: (?:WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG)\]")
"""What OpenSSL calls an answer that is no TLS, by its version."""


def advised(error: ConnectionFailedError) -> RegistryError:
    """The error with what helps, in one line. Where TLS fails it is none that another attempt may mend."""
    said = str(error)
    where = said.partition(": ")[0]
    if refused := _REFUSED.search(said):
        return RegistryError(f"{where}: its certificate is refused, {_untrusted(refused[1])}")
    if _NO_TLS.search(said):
        return RegistryError(f'{where}: no HTTPS is spoken there (--insecure, or "insecure": true, is plain HTTP)')
    said = _ADDRESS.sub("", said)
    hint = next((hint for reason, hint in _HINTS.items() if said.endswith(reason)), "")
    return ConnectionFailedError(f"{said} ({hint})" if hint else said)


def _untrusted(why: str) -> str:
    if _OTHER_NAME in why:
        return f"it{why.partition('certificate')[2]} (call the registry by the name that its certificate is for)"
    if any(text in why for text in _NO_AUTHORITY):
        return f"{why} (if you trust who signed it, start the server with SSL_CERT_FILE=<that authority's certificate>)"
    return why
