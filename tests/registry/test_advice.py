"""What is said of a registry that is not reached, whatever version of OpenSSL says it."""

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


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Error connecting to ('127.0.0.1', 1): Connection refused", "Connection refused (no registry listens there)"),
        (
            "Name or service not known",
            "Name or service not known (check the host in the model's name, and the network)",
        ),
        (
            "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error (_ssl.c:1006)",
            "[SSL: TLSV1_ALERT_INTERNAL_ERROR] tlsv1 alert internal error (_ssl.c:1006)",
        ),
        ("no connection within 30 seconds", "no connection within 30 seconds"),
    ],
)
def test_what_may_pass_is_tried_again(said: str, told: str) -> None:
    error = advised(ConnectionFailedError(BEGIN + said))
    assert str(error) == BEGIN + told
    assert isinstance(error, ConnectionFailedError)
