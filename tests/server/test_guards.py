"""Which pages and which host names may use the daemon."""

from __future__ import annotations

import pytest

from trio_ollama.server.asgi import App
from trio_ollama.server.fallbacks import install_fallbacks
from trio_ollama.server.guards import OriginRules, host_allowed, host_of, install_guards, same_origin
from trio_ollama.settings import BUILT_IN_ORIGINS

ENTRIES = (*BUILT_IN_ORIGINS, "https://a.example", "https://*.b.example", "chrome-extension://*")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("https://localhost", True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1:8443", True),
        ("http://0.0.0.0", True),
        ("HTTP://LOCALHOST:3000", True),
        ("app://anything", True),
        ("file://", True),
        ("tauri://localhost", True),
        ("vscode-webview://1a2b", True),
        ("chrome-extension://abcdef", True),
        ("moz-extension://abcdef", False),
        ("https://a.example", True),
        ("http://a.example", False),
        ("https://a.example:444", False),
        ("https://x.b.example", True),
        ("https://.b.example", True),
        ("https://b.example", False),
        ("http://localhost.evil.example", False),
        ("http://localhost3000", False),
        ("null", False),
    ],
)
def test_origins(origin: str, allowed: bool) -> None:
    assert OriginRules.parse(ENTRIES).allows(origin) is allowed


def test_a_star_alone_allows_every_origin() -> None:
    rules = OriginRules.parse(["*"])
    assert rules.any
    assert rules.allows("https://anywhere.example")


def test_both_ends_of_a_pattern_must_fit_without_overlap() -> None:
    assert not OriginRules.parse(["http://ab*ba"]).allows("http://aba")
    assert OriginRules.parse(["http://ab*ba"]).allows("http://abba")


def test_two_stars_are_an_error() -> None:
    with pytest.raises(ValueError, match="only one"):
        OriginRules.parse(["http://*.example:*"])


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://h:11434", "h:11434", True),
        ("https://h:11434", "h:11434", True),
        ("http://h", "h:11434", False),
        ("", "h", False),
    ],
)
def test_same_origin(origin: str, host: str, same: bool) -> None:
    assert same_origin(origin, host) is same


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("", ""),
        ("localhost", "localhost"),
        ("LocalHost:11434", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("h:", "h"),
    ],
)
def test_host_of(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("", True),
        ("localhost:11434", True),
        ("LOCALHOST", True),
        ("MyBox:11434", True),
        ("a.localhost", True),
        ("printer.local", True),
        ("host.docker.internal:11434", True),
        ("local", False),
        ("notlocalhost", False),
        ("127.0.0.1:11434", True),
        ("127.8.9.1", True),
        ("[::1]:11434", True),
        ("[::ffff:127.0.0.1]", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.1.5:80", True),
        ("[fd00::1]", True),
        ("0.0.0.0", True),
        ("[::]", True),
        ("203.0.113.9", True),
        ("203.0.113.8", False),
        ("169.254.1.1", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("a b..c", False),
    ],
)
def test_hosts(header: str, allowed: bool) -> None:
    assert host_allowed(header, "mybox", lambda address: address == "203.0.113.9") is allowed


def guarded(*, loopback: bool = True, origins: tuple[str, ...] = BUILT_IN_ORIGINS) -> App:
    app = App("guarded")
    install_fallbacks(app)
    install_guards(app, origins=origins, loopback=loopback)

    @app.get("/thing")
    async def thing() -> str:
        return "thing"

    return app


async def test_an_allowed_origin_is_named_in_the_response() -> None:
    response = await guarded().test_client().get("/thing", headers={"Origin": "http://localhost:3000"})
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert response.headers["Vary"] == "Origin"
    assert "X-Request-Id" in response.headers["Access-Control-Expose-Headers"].split(",")


async def test_every_origin_is_a_star() -> None:
    client = guarded(origins=("*",)).test_client()
    response = await client.get("/thing", headers={"Origin": "https://any.example"})
    assert response.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("path", ["/thing", "/unknown"])
async def test_another_origin_is_refused(path: str) -> None:
    response = await guarded().test_client().get(path, headers={"Origin": "https://evil.example"})
    assert response.status_code == 403
    assert await response.get_data() == b""
    assert "Access-Control-Allow-Origin" not in response.headers


async def test_the_daemons_own_pages_need_no_permission() -> None:
    headers = {"Origin": "http://192.168.7.7:11434", "Host": "192.168.7.7:11434"}
    response = await guarded().test_client().get("/thing", headers=headers)
    assert response.status_code == 200
    assert "Access-Control-Allow-Origin" not in response.headers


async def test_preflight() -> None:
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    response = await guarded().test_client().options("/thing", headers=headers)
    assert response.status_code == 204
    assert response.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert response.headers["Access-Control-Allow-Methods"] == "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
    allowed = response.headers["Access-Control-Allow-Headers"].split(",")
    assert len(allowed) == 18 + 2
    assert {"Authorization", "Content-Type", "OpenAI-Beta", "x-stainless-retry-count", "X-Request-Id"} < set(allowed)
    assert response.headers["Access-Control-Max-Age"] == "43200"
    assert "Access-Control-Allow-Credentials" not in response.headers


@pytest.mark.parametrize(("loopback", "status"), [(True, 403), (False, 200)])
async def test_a_rebound_name_is_refused_on_loopback_only(loopback: bool, status: int) -> None:
    response = await guarded(loopback=loopback).test_client().get("/thing", headers={"Host": "evil.example"})
    assert response.status_code == status


@pytest.mark.parametrize(("loopback", "status"), [(True, 204), (False, 405)])
async def test_options_without_an_origin(loopback: bool, status: int) -> None:
    response = await guarded(loopback=loopback).test_client().options("/thing")
    assert response.status_code == status
