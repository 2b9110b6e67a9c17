"""Tokens: asked for when a registry wants one, where it says, signed by a key that is made then."""

from __future__ import annotations

import base64
import hashlib
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.support.fake_registry import MODEL, Reaction, Request
from trio_ollama.models.manifest import Layer, Manifest
from trio_ollama.registry import RegistryError
from trio_ollama.registry.challenge import Challenge, read_token
from trio_ollama.registry.keys import Keys

from .conftest import Here

TINY = b"tiny"


def check_signature(text: bytes, signed: str) -> None:
    """Raises unless the key in front of the colon has signed the text."""
    public, _, signature = signed.partition(":")
    raw = base64.b64decode(public)
    assert raw[:19] == b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
    Ed25519PublicKey.from_public_bytes(raw[19:]).verify(base64.b64decode(signature), text)


async def test_a_registry_that_wants_it_is_shown_a_token(here: Here) -> None:
    here.remote.token = "secret"
    here.remote.add_model("library/tiny:latest", TINY)
    assert (await here.pull())[-1].status == "success"
    asked = here.remote.of("GET", "/token")[0]
    query = asked.target.partition("?")[2]
    assert "service=fake&scope=repository%3Aa%3Apull&scope=repository%3Aa%3Apush&ts=" in query
    nothing = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()
    check_signature(f"GET,{here.remote.url}{asked.target},{nothing}".encode(), asked.headers["authorization"])
    assert len(base64.urlsafe_b64decode(asked.query["nonce"] + "==")) == 16
    again = here.remote.of("GET", "/manifests/")
    assert [request.headers.get("authorization") for request in again] == [None, "Bearer secret"]


async def test_parts_that_are_refused_together_sign_in_once(here: Here) -> None:
    data = bytes(1_000_000)
    here.remote.add_model("library/tiny:latest", data)
    here.remote.token = "first"
    changed = []

    def react(request: Request) -> Reaction | None:
        if request.is_part and not changed:
            changed.append(here.remote.token)
            here.remote.token = "second"  # the old one has run out
        return None

    here.remote.react = react
    assert (await here.pull())[-1].status == "success"
    assert len(here.remote.of("GET", "/token")) <= 4, "for the manifest, the first blob, its parts together, the config"


async def test_a_part_that_is_refused_when_all_of_it_has_come_is_sent_again_from_its_beginning(here: Here) -> None:
    data = bytes(range(256)) * 4000
    digest = str(here.store.put_blob_bytes(data, MODEL).digest)
    config = here.store.put_blob_bytes(b"{}", "application/vnd.docker.container.image.v1+json")
    layer = Layer(MODEL, digest, len(data), "")
    here.store.write_manifest(here.reference().name, Manifest(config=config, layers=(layer,)))
    here.remote.token = "first"

    def react(request: Request) -> Reaction | None:
        if request.headers.get("content-range", "").startswith("300000-"):
            here.remote.token = "second"  # the first has run out
        return None

    here.remote.react = react
    assert (await here.push("library/tiny:latest"))[-1].status == "success"
    assert here.remote.blobs[digest] == data
    sizes = [len(request.body) for request in here.remote.of("PATCH", "") if request.headers["content-range"][0] == "3"]
    assert sizes == [300_000, 300_000]


async def test_who_is_refused_with_a_token_is_refused(here: Here) -> None:
    here.remote.add_model("library/tiny:latest", TINY)
    here.remote.token = "secret"
    here.remote.react = lambda request: Reaction(200, body=b'{"token":"wrong"}') if request.path == "/token" else None
    with pytest.raises(RegistryError, match=r"^pull model manifest: unauthorized: access denied$"):
        await here.pull()
    assert len(here.remote.of("GET", "/manifests/")) == 2


async def test_our_signature_is_not_sent_elsewhere(here: Here) -> None:
    challenge = {"WWW-Authenticate": 'Bearer realm="http://evil.example/token",service="s",scope="x"'}
    here.remote.react = lambda _: Reaction(401, challenge)
    text = rf'realm host "evil.example" does not match original host "{here.remote.host}"$'
    with pytest.raises(RegistryError, match=text):
        await here.pull()
    assert len(here.remote.requests) == 1


@pytest.mark.parametrize("header", ["", "Bearer ", 'Bearer service="a"'])
def test_challenges_that_are_none(header: str) -> None:
    with pytest.raises(RegistryError, match="unauthorized: access denied"):
        Challenge.parse(header, "http://host/v2/")


def test_passwords_are_not_what_we_have() -> None:
    with pytest.raises(
        RegistryError, match=r"^the registry asks for a user name and a password, which cannot be given"
    ):
        Challenge.parse('Basic realm="here"', "http://host/v2/")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"token":7}', b"[]", b"\xff"])
def test_answers_without_a_token(body: bytes) -> None:
    with pytest.raises(RegistryError):
        read_token(body)


def test_the_key_is_made_once_and_is_what_ssh_would_make(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "new" / "id_ed25519")
    check_signature(b"text", keys.sign(b"text"))
    secret = keys.path.read_bytes()
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert secret.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    kind, public = keys.path.with_suffix(".pub").read_text(encoding="ascii").split()
    assert kind == "ssh-ed25519"
    assert Keys(keys.path).sign(b"text") == keys.sign(b"text"), "ed25519 signs the same text in the same way"
    assert keys.sign(b"text").startswith(f"{public}:")
    assert keys.path.read_bytes() == secret
    assert sorted(path.name for path in keys.path.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_transfers_that_begin_together_make_one_key(tmp_path: Path) -> None:
    for number in range(10):
        keys = Keys(tmp_path / str(number) / "id_ed25519")
        with ThreadPoolExecutor(8) as threads:
            signed = set(threads.map(keys.sign, [b"text"] * 8))
        assert len(signed) == 1, "with the same key"
        assert keys.sign(b"text") in signed, "which is the one that stays"
        public = keys.path.with_suffix(".pub").read_text(encoding="ascii").split()[1]
        assert signed.pop().startswith(f"{public}:")
        assert len(list(keys.path.parent.iterdir())) == 2


@pytest.mark.parametrize("content", ["", "no key", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n"])
def test_a_key_that_cannot_be_used_is_told_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "id_ed25519"
    path.write_text(content, encoding="ascii")
    with pytest.raises(RegistryError, match=f"^the key {path} cannot be used: "):
        Keys(path).sign(b"text")
    assert path.read_text(encoding="ascii") == content


def test_the_libraries_of_keys_are_not_imported_before_a_key_is_needed() -> None:
    names = ("cryptography", "httpx2")
    program = f"import sys, trio_ollama.server.app; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
