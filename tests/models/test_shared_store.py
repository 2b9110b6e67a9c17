"""Several programs on one store: daemons of ours that know of each other's lock, and an Ollama that does not."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.store_fixture import OllamaStore
from trio_ollama.models import lock
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import BlobNotFoundError, ModelNotFoundError
from trio_ollama.models.manifests import Manifests
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store


def hammer(root: Path, seed: int, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.store_hammer", str(root), str(seed), str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_whole(store: Store) -> None:
    entries, damaged = store.manifests.scan()
    assert not damaged
    for entry in entries:
        model = store.load(entry)
        assert model.weights_path is not None
        for layer in entry.manifest.blobs:
            assert Digest.of(store.blob_path(layer.digest).read_bytes()) == layer.parsed_digest


def test_two_processes_that_do_everything_at_once(tmp_path: Path) -> None:
    root = OllamaStore(tmp_path / "models").root
    processes = [hammer(root, seed, 250) for seed in (1, 2)]
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        counts = json.loads(output)
        assert {"make", "derive", "copy", "delete", "read"} <= counts.keys(), counts
    store = Store(root)
    is_whole(store)
    # Nothing is left over that a pruning would not find, and it takes nothing that is needed.
    store.prune(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2))
    is_whole(store)
    used = {layer.parsed_digest.file_name for entry in store.list() for layer in entry.manifest.blobs}
    assert set(os.listdir(root / "blobs")) == used
    assert not list((root / "manifests").rglob(".*"))


def test_two_processes_that_are_killed(tmp_path: Path) -> None:
    root = OllamaStore(tmp_path / "models").root
    processes = [hammer(root, seed, 1_000_000) for seed in (3, 4)]
    store = Store(root)
    seen = 0
    try:
        for _ in range(100_000):
            seen += len(store.list())
            if seen >= 200 or any(process.poll() is not None for process in processes):
                break
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert seen >= 200
    is_whole(store)


def between(monkeypatch: pytest.MonkeyPatch, method: str, then: Callable[[], object]) -> None:
    """Have somebody else do `then` right after our next call of a method of `Manifests`."""
    original = getattr(Manifests, method)

    def instead(manifests: Manifests, *arguments: object) -> object:
        monkeypatch.setattr(Manifests, method, original)
        result = original(manifests, *arguments)
        then()
        return result

    monkeypatch.setattr(Manifests, method, instead)


def aged(theirs: OllamaStore) -> None:
    """Everything has been there for a day."""
    then = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).timestamp()
    for path in theirs.root.rglob("*"):
        os.utime(path, (then, then))


def test_another_daemon_waits_until_a_deletion_is_done(
    theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the look at who needs a blob and the removal, and finds the blob gone: no model without it."""
    manifest = theirs.add("old:x", b"weights")
    aged(theirs)
    results: list[object] = []

    def other() -> None:
        try:
            results.append(Store(theirs.root).write_manifest(ModelName.parse("new:x"), manifest))
        except BlobNotFoundError as error:
            results.append(error)

    thread = threading.Thread(target=other)

    def come() -> None:
        thread.start()
        thread.join(0.3)
        results.append("deleted")

    between(monkeypatch, "scan", come)
    store.delete("old:x")
    thread.join(30)
    assert results[0] == "deleted"
    assert isinstance(results[1], BlobNotFoundError)
    assert store.list() == ()


def test_ollama_takes_up_a_blob_while_we_delete_its_model(
    theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It touches the blobs first and writes the manifest afterwards, which our look may miss."""
    manifest = theirs.add("old:x", b"weights", system="s")
    aged(theirs)
    weights = theirs.root / "blobs" / Digest.of(b"weights").file_name
    between(monkeypatch, "scan", lambda: os.utime(weights))
    removal = store.delete("old:x")
    assert Digest.of(b"weights") in removal.unused
    assert weights.exists()
    assert not store.has_blob(str(Digest.of(b"s")))
    assert manifest
    # Nothing came of it: a pruning, later, removes it.
    store.prune(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2))
    assert not weights.exists()


def test_ollama_takes_up_a_blob_while_we_prune(
    theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs.add("other:x", b"other")
    weights = theirs.root / "blobs" / Digest.parse(theirs.blob(b"weights")).file_name
    aged(theirs)
    between(monkeypatch, "scan", lambda: os.utime(weights))
    assert store.prune(datetime.datetime.now(datetime.UTC)) == ()
    assert weights.exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_ollama_removes_a_blob_while_we_write_a_manifest(
    replaced: bool, theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model without its weights appears, and the one that was there stays."""
    theirs.add("m:x", b"weights")
    before = theirs.add("n:x", b"other")
    between(monkeypatch, "data", (theirs.blobs / Digest.of(b"weights").file_name).unlink)
    with pytest.raises(BlobNotFoundError):
        store.copy("m:x", "n:x" if replaced else "new:x")
    if replaced:
        assert theirs.manifest_path("n:x").read_bytes() == before
    else:
        assert not theirs.manifest_path("new:x").parent.exists()


def test_a_model_that_goes_while_it_is_read_is_not_damaged(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", b"weights")
    entry = store.list()[0]
    store.delete("m:x")
    with pytest.raises(ModelNotFoundError):
        store.load(entry)
    theirs.add("m:x", b"new weights")
    assert store.load(entry).weights_digest == Digest.of(b"new weights")


def test_a_tidied_directory_is_made_again(theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last model of a directory goes while a new one is written into it."""
    theirs.add("m:x")
    folder = theirs.manifests / "registry.ollama.ai" / "library" / "n"
    original = Path.mkdir

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        original(path, *arguments, **options)
        if path == folder:
            monkeypatch.setattr(Path, "mkdir", original)
            folder.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir)
    store.copy("m:x", "n:x")
    assert store.resolve("n:x").name.short == "n:x"


def test_a_process_that_keeps_the_lock_costs_blobs_not_models(
    theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock, "_TRIES", 2)
    theirs.add("m:x", b"weights")
    descriptor = os.open(theirs.root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        store.copy("m:x", "n:x")
        store.delete("m:x")
        store.delete("n:x")
    finally:
        os.close(descriptor)
    assert "another process does not let go of the model store" in caplog.text
    assert store.list() == ()
    assert store.has_blob(str(Digest.of(b"weights")))
