"""A process that is killed while it works on the store: every model is as it was, or as it should become."""

from __future__ import annotations

import datetime
import hashlib
import os
from pathlib import Path

import pytest

from tests.support.killed_steps import NEW_WEIGHTS, OPERATIONS, WEIGHTS, killed_before_each_step, split
from tests.support.store_fixture import OllamaStore
from trio_ollama.models.store import Store

HOUR = datetime.timedelta(hours=1)


def store_before(root: Path) -> None:
    """Three models, two of which share their weights; files that were uploaded; and what others have left behind."""
    theirs = OllamaStore(root)
    theirs.add("m:latest", WEIGHTS, system="old", params={"temperature": 0.5})
    theirs.add("me/twin:latest", WEIGHTS, system="old", license="its own")
    theirs.add("alone:latest", b"GGUF of another", system="alone")
    for file in (NEW_WEIGHTS, split(0), split(1)):
        theirs.blob(file)
    old_name = (
        theirs.blobs
        / theirs.add("ancient:latest", b"ancient weights").decode().split('image.model","digest":"')[1][:71]
    )
    os.rename(old_name.with_name(old_name.name.replace(":", "-")), old_name)
    left = [theirs.blobs / f"sha256-{'1' * 64}", theirs.blobs / f"sha256-{'2' * 64}-partial"]
    left += [theirs.blobs / f"sha256-{'2' * 64}-partial-0", theirs.blobs / "sha256-x1y2z3"]
    left += [theirs.manifests / "registry.ollama.ai" / "library" / "m" / ".latest.tmp"]
    for path in left:
        path.write_bytes(b"?")
    then = (datetime.datetime.now(datetime.UTC) - 2 * HOUR).timestamp()
    for path in (*left, old_name):
        os.utime(path, (then, then))


def models(root: Path) -> dict[str, str]:
    """Names and manifests' digests. Every one can be read, and has all its blobs, with the right content."""
    store = Store(root)
    store.prepare()  # as every daemon does at its start
    entries, damaged = store.manifests.scan()
    assert not damaged
    for entry in entries:
        store.load(entry)
        for layer in entry.manifest.blobs:
            data = store.blob_path(layer.digest).read_bytes()
            assert f"sha256:{hashlib.sha256(data).hexdigest()}" == layer.digest
    return {entry.name.short: entry.digest for entry in entries}


def leftovers(root: Path) -> set[str]:
    """Files that are neither a manifest nor a blob that one refers to."""
    store = Store(root)
    used = {layer.parsed_digest.file_name for entry in store.list() for layer in entry.manifest.blobs}
    found = {path.name for path in (root / "blobs").iterdir()} - used
    return found | {path.name for path in (root / "manifests").rglob(".*")}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_any_step(operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    store_before(tmp_path / "before")
    steps = killed_before_each_step(operation, tmp_path)
    before, after = models(tmp_path / "before"), models(tmp_path / "0")
    assert len(steps) > 2
    for last in range(1, len(steps) + 1):
        root, at = tmp_path / str(last), f"killed before step {last}, {steps[last - 1]}"
        now = models(root)
        assert now in (before, after), at
        # Somebody tries again, and later a daemon starts on what is left.
        if now != after or not operation.startswith("delete"):
            OPERATIONS[operation](Store(root))
        Store(root).prune(datetime.datetime.now(datetime.UTC) + 2 * HOUR)
        assert leftovers(root) == set(), at
        assert models(root) == after, at
