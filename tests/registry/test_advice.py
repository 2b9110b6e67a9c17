"""What is said of a registry whose TLS fails, whatever version of OpenSSL says it."""

from __future__ import annotations

import pytest

from trio_ollama.registry.advice import advised
from trio_ollama.registry.errors import ConnectionFailedError

BEGIN = "connection to host:1 failed: "
REFUSED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            f"{REFUSED}Hostname mismatch, certificate is not valid for 'host'. (_ssl.c:1006)",
            "its certificate is refused, it is not valid for 'host' (call the registry by the name that its "
            "certificate is for)",
        ),
        (
            f"{REFUSED}self-signed certificate in certificate chain (_ssl.c:1000)",
            "its certificate is refused, self-signed certificate in certificate chain (if you trust who signed it, "
            "start the server with SSL_CERT_FILE=<that authority's certificate>)",
        ),
        (f"{REFUSED}certificate has expired", "its certificate is refused, certificate has expired"),
        (
            "[SSL: RECORD_LAYER_FAILURE] record layer failure (_ssl.c:1032)",
            'no HTTPS is spoken there (--insecure, or "insecure": true, is plain HTTP)',
        ),
    ],
)
def test_what_no_other_attempt_will_mend(said: str, told: str) -> None:
    error = advised(ConnectionFailedError(BEGIN + said))
    assert str(error) == BEGIN + told
    assert not isinstance(error, ConnectionFailedError)


def test_everything_else_stays_as_it_is() -> None:
    for said in ("Connection refused", "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error (_ssl.c:1006)"):
        error = ConnectionFailedError(BEGIN + said)
        assert advised(error) is error
