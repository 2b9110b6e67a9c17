"""A store that is damaged in ten ways: every route says clearly what is wrong, nothing is lost, other models work.

One daemon for all of it, on a store that is reached through a link.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_client import ask, get
from tests.support.raw_http import exchange
from tests.support.sick_disk_daemon import SickDiskDaemon
from tests.support.store_fixture import OllamaStore

from .conftest import ONE_THREAD

ANSWERED = 30.0
MESSAGES = [{"role": "user", "content": "w1"}]
OPTIONS = {"num_predict": 4}
GOOD = ("tiny", "other")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, bytes]) -> OllamaStore:
    """A store with two good models."""
    made = OllamaStore(tmp_path_factory.mktemp("disk") / "models")
    for name in GOOD:
        made.add(f"{name}:latest", tiny_models[name], params=ONE_THREAD)
    return made


@pytest.fixture(scope="module")
def daemon(theirs: OllamaStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickDiskDaemon]:
    """On a link to the store: the symlinked store is the ninth of the ten cases."""
    folder = tmp_path_factory.mktemp("home")
    link = folder / "models"
    link.symlink_to(theirs.root)
    with SickDiskDaemon(link, folder / "disk") as running:
        yield running


async def chat(daemon: SickDiskDaemon, model: str) -> tuple[int, Any]:
    return await ask(daemon.port, "/api/chat", within=ANSWERED, model=model, messages=MESSAGES, options=OPTIONS)


async def show(daemon: SickDiskDaemon, model: str) -> tuple[int, Any]:
    return await ask(daemon.port, "/api/show", model=model)


async def create(daemon: SickDiskDaemon, model: str, **fields: Any) -> tuple[int, Any]:
    return await ask(daemon.port, "/api/create", model=model, stream=False, **fields)


async def delete(daemon: SickDiskDaemon, model: str) -> tuple[int, Any]:
    body = json.dumps({"model": model}).encode()
    head = f"DELETE /api/delete HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = await exchange(daemon.port, head + body)
    return answer.status, answer.json if answer.status != 200 else None


async def listed(daemon: SickDiskDaemon) -> set[str]:
    return {model["name"].removesuffix(":latest") for model in (await get(daemon.port, "/api/tags"))["models"]}


def good_files(theirs: OllamaStore) -> dict[str, bytes]:
    """Manifests and blobs of the good models."""
    found = {}
    for name in GOOD:
        manifest = theirs.manifest_path(f"{name}:latest")
        digests = re.findall(r'"sha256:([0-9a-f]{64})"', manifest.read_text())
        for path in (manifest, *(theirs.blobs / f"sha256-{digest}" for digest in digests)):
            found[str(path.relative_to(theirs.root))] = path.read_bytes()
    return found


async def all_is_well(daemon: SickDiskDaemon, theirs: OllamaStore, files: dict[str, bytes]) -> None:
    """The files are still there as they were, and the good models answer."""
    now = theirs.files()
    assert [name for name, data in files.items() if now.get(name) != data] == []
    assert await listed(daemon) >= set(GOOD)
    status, answer = await chat(daemon, "tiny")
    assert (status, answer.get("eval_count")) == (200, 4), answer


def blob(theirs: OllamaStore, data: bytes) -> Path:
    return theirs.blobs / f"sha256-{hashlib.sha256(data).hexdigest()}"


def aged(theirs: OllamaStore, data: bytes) -> None:
    """The blob has not been touched for a while, so that a deletion need not fear that somebody wants it."""
    if blob(theirs, data).exists():
        os.utime(blob(theirs, data), (1e9, 1e9))


# -- manifests that cannot be read ------------------------------------------------------------------------------


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def huge(path: Path) -> None:
    os.truncate(path, 9 << 20)


@pytest.mark.parametrize("harm", [half, huge])
async def test_a_manifest_that_cannot_be_read(
    harm: Callable[[Path], None], daemon: SickDiskDaemon, theirs: OllamaStore
) -> None:
    files = good_files(theirs)
    theirs.add("bad:latest", b"its weights", system="its system")
    harm(theirs.manifest_path("bad:latest"))
    assert "bad" not in await listed(daemon)
    for status, answer in (
        await show(daemon, "bad"),
        await chat(daemon, "bad"),
        await create(daemon, "new", **{"from": "bad"}),
        await ask(daemon.port, "/api/copy", source="bad", destination="new"),
    ):
        assert status == 500
        assert answer["error"].startswith("the manifest of 'bad:latest' cannot be used: ")
    # Its blobs are nobody's now, as far as anybody can tell: a deletion of another model takes none of them.
    assert (await create(daemon, "new", **{"from": "tiny"}, system="w9"))[0] == 200
    assert (await delete(daemon, "new"))[0] == 200
    assert blob(theirs, b"its weights").exists()
    assert blob(theirs, b"its system").exists()
    await all_is_well(daemon, theirs, files)
    # It is replaced, or removed, like any other.
    assert (await create(daemon, "bad", **{"from": "tiny"}))[0] == 200
    assert (await chat(daemon, "bad"))[0] == 200
    assert (await delete(daemon, "bad"))[0] == 200
    assert "bad" not in await listed(daemon)
    await all_is_well(daemon, theirs, files)


# -- blobs ------------------------------------------------------------------------------------------------------


WEIGHTS, SYSTEM = b"GGUF that is replaced below", b"precious"

BLOBS: dict[str, tuple[bytes, Callable[[Path], object], str]] = {
    "weights are missing": (WEIGHTS, Path.unlink, "is missing"),
    "weights are cut": (WEIGHTS, lambda path: path.write_bytes(b"GGUF"), "has 4 bytes instead of {size}"),
    "text is missing": (SYSTEM, Path.unlink, "is missing"),
    "text is another": (SYSTEM, lambda path: path.write_bytes(b"PRECIOUS"), "is not what its digest says"),
}


@pytest.mark.parametrize("case", BLOBS)
async def test_a_blob_that_is_not_what_it_should_be(
    case: str, daemon: SickDiskDaemon, theirs: OllamaStore, tiny_models: dict[str, bytes]
) -> None:
    files = good_files(theirs)
    data, harm, why = BLOBS[case]
    theirs.add("bad:latest", WEIGHTS, system=SYSTEM.decode())
    harm(blob(theirs, data))
    aged(theirs, data)
    text = (
        f"model 'bad:latest' is damaged: blob sha256:{hashlib.sha256(data).hexdigest()} {why.format(size=len(data))}; "
        "remove it, then pull or create it again"
    )
    assert "bad" in await listed(daemon)
    for answer in (
        await show(daemon, "bad"),
        await chat(daemon, "bad"),
        await create(daemon, "new", **{"from": "bad"}),
    ):
        assert answer == (500, {"error": text})
    await all_is_well(daemon, theirs, files)
    assert (await delete(daemon, "bad"))[0] == 200
    assert "bad" not in await listed(daemon)
    assert not blob(theirs, data).exists()
    await all_is_well(daemon, theirs, files)


async def test_weights_of_the_right_size_with_other_content(
    daemon: SickDiskDaemon, theirs: OllamaStore, tiny_models: dict[str, bytes]
) -> None:
    """Nobody hashes gigabytes at each load; what can be seen in the header is told, and the load tells the rest."""
    files = good_files(theirs)
    weights = tiny_models["tiny"] + bytes(32)
    theirs.add("bad:latest", weights, params=ONE_THREAD)
    blob(theirs, weights).write_bytes(b"JUNK" + weights[4:])
    for status, answer in (await show(daemon, "bad"), await chat(daemon, "bad")):
        assert (status, answer) == (500, {"error": "invalid file magic"})
    assert (await delete(daemon, "bad"))[0] == 200
    await all_is_well(daemon, theirs, files)


async def test_layers_of_unknown_types(
    daemon: SickDiskDaemon, theirs: OllamaStore, tiny_models: dict[str, bytes]
) -> None:
    """Beside the weights they change nothing, and stay; in the place of the weights there is nothing to run."""
    files = good_files(theirs)
    unknown = "application/vnd.example.future"
    theirs.add("more:latest", tiny_models["other"], params=ONE_THREAD, layers=[theirs.layer(unknown, b"?")])
    theirs.add("only:latest", None, layers=[theirs.layer(unknown, b"??")])
    assert await listed(daemon) >= {"more", "only"}
    assert (await show(daemon, "more"))[0] == 200
    assert (await show(daemon, "only"))[0] == 200
    assert (await chat(daemon, "more"))[0] == 200
    assert await chat(daemon, "only") == (500, {"error": "model 'only:latest' has no weights"})
    assert (await create(daemon, "copy", **{"from": "more"}, system="w9"))[0] == 200
    assert (await delete(daemon, "more"))[0] == 200
    assert blob(theirs, b"?").exists(), "a layer that the other model has inherited"
    assert (await delete(daemon, "copy"))[0] == 200
    assert (await delete(daemon, "only"))[0] == 200
    await all_is_well(daemon, theirs, files)


async def test_foreign_files(daemon: SickDiskDaemon, theirs: OllamaStore) -> None:
    before = set(theirs.files())
    folder = theirs.manifest_path("tiny:latest").parent
    foreign = [folder / "-odd", folder / ".hidden", theirs.manifests / "README", theirs.blobs / "notes.txt"]
    foreign += [theirs.blobs / f"sha256-{'1' * 64}-partial", theirs.root / "history"]
    for path in foreign:
        path.write_bytes(b"?")
    (theirs.blobs / "folder").mkdir()
    files = theirs.files()
    assert await listed(daemon) == set(GOOD)
    assert (await show(daemon, "tiny:-odd"))[0] == 400
    assert (await create(daemon, "tiny:new", **{"from": "tiny"}, system="w9"))[0] == 200
    assert (await delete(daemon, "tiny:new"))[0] == 200
    await all_is_well(daemon, theirs, files)
    for path in foreign:
        path.unlink()
    (theirs.blobs / "folder").rmdir()
    assert set(theirs.files()) == before


# -- the disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reason"), [("full", "No space left on device"), ("read-only", "Read-only file system")]
)
async def test_a_disk_that_takes_nothing(state: str, reason: str, daemon: SickDiskDaemon, theirs: OllamaStore) -> None:
    files = good_files(theirs)
    data = b"an upload"
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    head = f"POST /api/blobs/{digest} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    daemon.disk = state
    try:
        answers = [
            await create(daemon, "new", **{"from": "tiny"}, system="something new"),
            await ask(daemon.port, "/api/copy", source="tiny", destination="new"),
        ]
        upload = await exchange(daemon.port, head + data)
        answers.append((upload.status, upload.json))
        if state == "read-only":
            answers.append(await delete(daemon, "other"))
        for status, answer in answers:
            assert status == 500
            assert reason in answer["error"], answer
            assert answer["error"].startswith("cannot "), answer
        await all_is_well(daemon, theirs, files)
        assert (await show(daemon, "other"))[0] == 200
    finally:
        daemon.disk = ""
    assert (await create(daemon, "new", **{"from": "tiny"}, system="something new"))[0] == 200
    assert (await delete(daemon, "new"))[0] == 200
    await all_is_well(daemon, theirs, files)


# -- names ------------------------------------------------------------------------------------------------------


async def test_names_that_differ_in_case(
    daemon: SickDiskDaemon, theirs: OllamaStore, tiny_models: dict[str, bytes]
) -> None:
    """Of two that clash each is reached by its exact spelling, and no new clash is made."""
    files = good_files(theirs)
    theirs.add("clash:latest", tiny_models["tiny"], params=ONE_THREAD, system="w1")
    theirs.add("Clash:latest", tiny_models["tiny"], params=ONE_THREAD, system="w2")
    assert await listed(daemon) >= {"clash", "Clash"}
    for name, system in (("clash", "w1"), ("Clash", "w2")):
        status, answer = await show(daemon, name)
        assert (status, answer["system"]) == (200, system)
    assert (await chat(daemon, "CLASH"))[0] == 200
    assert (await create(daemon, "TINY:new", **{"from": "Tiny"}))[0] == 200
    assert "tiny:new" in await listed(daemon)
    assert (await delete(daemon, "Clash"))[0] == 200
    assert (await show(daemon, "Clash"))[1]["system"] == "w1"
    for name in ("CLASH", "tiny:NEW"):
        assert (await delete(daemon, name))[0] == 200
    assert await listed(daemon) == set(GOOD)
    await all_is_well(daemon, theirs, files)


async def test_the_store_was_reached_through_a_link_all_the_time(daemon: SickDiskDaemon, theirs: OllamaStore) -> None:
    assert daemon.store.is_symlink()
    elsewhere = theirs.root.parent / "elsewhere"
    weights = blob(theirs, b"far weights")
    elsewhere.write_bytes(b"far weights")
    weights.symlink_to(elsewhere)
    theirs.add("far:latest", b"far weights")
    assert "far" in await listed(daemon)
    assert (await delete(daemon, "far"))[0] == 200
    assert not weights.is_symlink()
    assert elsewhere.read_bytes() == b"far weights", "what a link points to is not ours to remove"
