"""Damaged stores: a clear message, nothing lost, the other models still there."""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.store_fixture import OllamaStore
from trio_ollama.models.details import listed
from trio_ollama.models.errors import BrokenModelError, ModelNotFoundError, StoreUnavailableError
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store

Damage = Callable[[OllamaStore, Path], object]


def _blob(theirs: OllamaStore, data: bytes) -> Path:
    return theirs.root / "blobs" / theirs.blob(data).replace(":", "-")


def _manifest(text: bytes) -> Damage:
    return lambda theirs, path: path.write_bytes(text)


def _half(theirs: OllamaStore, path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _huge(theirs: OllamaStore, path: Path) -> None:
    os.truncate(path, 20 << 30)  # sparse


def _pipe(theirs: OllamaStore, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_loop(theirs: OllamaStore, path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


_DIGEST = b"sha256:" + b"0" * 64
BROKEN_MANIFESTS: dict[str, Damage] = {
    "half written": _half,
    "empty": _manifest(b""),
    "not JSON": _manifest(b"\x7fELF\0\0"),
    "not an object": _manifest(b"[1,2]"),
    "nothing in it": _manifest(b"{}"),
    "a digest that leads elsewhere": _manifest(
        b'{"layers":[{"mediaType":"x","digest":"sha256:../../../etc","size":1}]}'
    ),
    "a size that is none": _manifest(b'{"layers":[{"mediaType":"x","digest":"%s","size":-1}]}' % _DIGEST),
    "a size that is text": _manifest(b'{"layers":[{"mediaType":"x","digest":"%s","size":"1"}]}' % _DIGEST),
    "nested without end": _manifest(b'{"layers":' + b"[" * 100_000),
    "huge": _huge,
    "a pipe": _pipe,
    "a link to itself": _link_loop,
}


@pytest.mark.parametrize("case", BROKEN_MANIFESTS)
def test_a_broken_manifest_is_skipped_and_costs_nothing(
    theirs: OllamaStore, store: Store, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    theirs.add("good:x", b"good")
    theirs.add("bad:x", b"bad", system="precious")
    path = theirs.manifest_path("bad:x")
    BROKEN_MANIFESTS[case](theirs, path)
    blobs = set(os.listdir(theirs.blobs))
    with caplog.at_level(logging.WARNING):
        assert [entry.name.short for entry in store.list()] == ["good:x"]
    assert any(str(path) in record.getMessage() for record in caplog.records)
    assert store.resolve("good:x").name.short == "good:x"
    with pytest.raises(BrokenModelError, match=r"^the manifest of 'bad:x' cannot be used: "):
        store.resolve("bad:x")
    # What it refers to is unknown now: nothing may be removed, be it by age, by delete or by replacing.
    long_after = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    assert store.prune(long_after) == ()
    data = theirs.manifest_path("good:x").read_bytes()
    assert store.delete("good:x").unused == frozenset()
    store.write_manifest(ModelName.parse("good:x"), data)
    assert set(os.listdir(theirs.blobs)) == blobs
    # It can be replaced and removed.
    store.copy("good:x", "bad:x")
    assert store.resolve("bad:x").digest == store.resolve("good:x").digest
    store.delete("bad:x")
    with pytest.raises(ModelNotFoundError):
        store.resolve("bad:x")


def _missing_config(theirs: OllamaStore, path: Path) -> None:
    store = Store(theirs.root)
    config = store.entry(ModelName.parse("bad:x")).manifest.config
    assert config is not None
    store.blob_path(config.digest).unlink()


def _text_as_folder(theirs: OllamaStore, path: Path) -> None:
    blob = _blob(theirs, b"precious")
    blob.unlink()
    blob.mkdir()


def _weights_as_folder(theirs: OllamaStore, path: Path) -> None:
    blob = _blob(theirs, b"bad")
    blob.unlink()
    blob.mkdir()


BROKEN_BLOBS: dict[str, Damage] = {
    "weights are missing": lambda theirs, path: _blob(theirs, b"bad").unlink(),
    "text is missing": lambda theirs, path: _blob(theirs, b"precious").unlink(),
    "text is a folder": _text_as_folder,
    "text is huge": lambda theirs, path: os.truncate(_blob(theirs, b"precious"), 20 << 30),
    "text is cut": lambda theirs, path: os.truncate(_blob(theirs, b"precious"), 4),
    "text is another": lambda theirs, path: _blob(theirs, b"precious").write_bytes(b"PRECIOUS"),
    "weights are longer": lambda theirs, path: os.truncate(_blob(theirs, b"bad"), 4),
    "weights are a folder": _weights_as_folder,
    "config is missing": _missing_config,
}


@pytest.mark.parametrize("case", BROKEN_BLOBS)
def test_a_model_without_a_part_says_which(theirs: OllamaStore, store: Store, case: str) -> None:
    theirs.add("good:x", b"good")
    theirs.add("bad:x", b"bad", system="precious", params={"num_ctx": 1}, config={"file_type": "Q8_0"})
    BROKEN_BLOBS[case](theirs, theirs.manifest_path("bad:x"))
    with pytest.raises(
        BrokenModelError, match=r"^model 'bad:x' is damaged: blob sha256:[0-9a-f]{64} (is|has) .*; remove it, then pull"
    ):
        store.resolve("bad:x")
    entries = store.list()
    assert sorted(entry.name.short for entry in entries) == ["bad:x", "good:x"]
    lines = {entry.name.short: listed(store, MetadataCache(), entry) for entry in entries}
    assert lines["bad:x"].model is None
    assert lines["good:x"].model is not None
    if "folder" not in case:
        store.delete("bad:x")
        assert [entry.name.short for entry in store.list()] == ["good:x"]


@pytest.mark.parametrize("params", [b"[1]", b"\xff{"])
def test_parameters_that_are_none_are_told(params: bytes, theirs: OllamaStore, store: Store) -> None:
    """They are what their digest says, and nevertheless nothing that can be used."""
    theirs.add("bad:x", layers=[theirs.layer("params", params)])
    with pytest.raises(BrokenModelError, match="is not what its type says"):
        store.resolve("bad:x")


def test_weights_that_are_no_gguf_are_listed_with_what_the_config_knows(theirs: OllamaStore, store: Store) -> None:
    theirs.add("bad:x", b"not a gguf", config={"capabilities": ["completion"]})
    line = listed(store, MetadataCache(), store.list()[0])
    assert line.details["quantization_level"] == "Q4_K_M"
    assert line.capabilities == ("completion",)


def test_foreign_files_are_left_alone(theirs: OllamaStore, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    theirs.add("good:x")
    folder = theirs.manifest_path("good:x").parent
    foreign = [folder / "-x", folder / "a b", theirs.manifests / "README", folder.parent / "notes.txt"]
    foreign += [folder / ".hidden"]
    for path in foreign:
        path.write_bytes(b"?")
    with caplog.at_level(logging.WARNING):
        assert [entry.name.short for entry in store.list()] == ["good:x"]
    assert len([record for record in caplog.records if "no model name" in record.getMessage()]) == 2
    store.delete("good:x")
    assert all(path.exists() for path in foreign)


def test_a_missing_manifest_folder_costs_no_blobs(theirs: OllamaStore, store: Store) -> None:
    """A disk that is not mounted, say: every blob looks unused then."""
    theirs.blob(b"x")
    theirs.manifests.rmdir()
    long_after = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    assert store.prune(long_after) == ()
    assert len(os.listdir(theirs.blobs)) == 1


def test_a_store_of_links_works_and_links_are_never_followed_by_removal(tmp_path: Path) -> None:
    theirs = OllamaStore(tmp_path / "disk")
    theirs.add("m:x", b"weights")
    (tmp_path / "link").symlink_to(theirs.root)
    elsewhere = tmp_path / "elsewhere"
    blob = _blob(theirs, b"weights")
    blob.rename(elsewhere)
    blob.symlink_to(elsewhere)
    namespace = theirs.manifests / "registry.ollama.ai" / "library"
    namespace.rename(tmp_path / "library")
    namespace.symlink_to(tmp_path / "library")
    store = Store(tmp_path / "link")
    weights = store.resolve("m:x").weights_path
    assert weights is not None
    assert weights.read_bytes() == b"weights"
    store.copy("m:x", "n")
    assert sorted(entry.name.short for entry in store.list()) == ["m:x", "n:latest"]
    store.delete("m:x")
    store.delete("n")
    assert not blob.is_symlink()
    assert elsewhere.read_bytes() == b"weights"


def test_a_loop_of_links_ends(theirs: OllamaStore, store: Store) -> None:
    theirs.add("good:x")
    (theirs.manifests / "registry.ollama.ai" / "self").symlink_to(theirs.manifests)
    (theirs.manifests / "broken").symlink_to(theirs.manifests / "broken")
    (theirs.manifests / "dangling").symlink_to(theirs.root / "nowhere")
    assert [entry.name.short for entry in store.list()] == ["good:x"]


@pytest.mark.parametrize("level", ["registry.ollama.ai", "registry.ollama.ai/library/lost/x"])
def test_models_on_a_disk_that_is_away_keep_their_blobs(theirs: OllamaStore, store: Store, level: str) -> None:
    theirs.add("h/n/here:x", b"here")
    theirs.add("lost:x", b"lost")
    moved = theirs.manifests / level
    moved.rename(theirs.root / "away")
    moved.symlink_to(theirs.root / "not mounted")
    blobs = os.listdir(theirs.blobs)
    long_after = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    assert store.prune(long_after) == ()
    assert [entry.name.short for entry in store.list()] == ["h/n/here:x"]
    assert os.listdir(theirs.blobs) == blobs


def test_a_file_in_the_stores_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "models").write_bytes(b"")
    store = Store(tmp_path / "models")
    with pytest.raises(StoreUnavailableError, match="cannot read the model store: Not a directory"):
        store.list()
    with pytest.raises(StoreUnavailableError, match="cannot write to the model store: Not a directory"):
        store.open_upload("sha256:" + "0" * 64)


def test_a_store_that_cannot_be_written_can_still_be_read(theirs: OllamaStore, store: Store) -> None:
    """Files in the place of directories stand for a read-only disk: tests may run as root, whom no mode bits stop."""
    theirs.add("m:x")
    folder = theirs.manifests / "registry.ollama.ai" / "full"
    folder.write_bytes(b"")
    with pytest.raises(StoreUnavailableError, match="cannot write to the model store") as caught:
        store.copy("m:x", "full/m")
    assert caught.value.status == 500
    assert store.resolve("m:x").name.short == "m:x"
    assert [entry.name.short for entry in store.list()] == ["m:x"]


def test_a_crash_between_write_and_rename_leaves_the_old_model(
    theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = theirs.add("m:x", b"old")
    theirs.add("n:x", b"new")

    def fail(source: object, target: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StoreUnavailableError, match="cannot write to the model store: Input/output error"):
        store.copy("n:x", "m:x")
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        store.put_blob_bytes(b"x", "text")
    monkeypatch.undo()
    assert theirs.manifest_path("m:x").read_bytes() == old
    assert os.listdir(theirs.manifest_path("m:x").parent) == ["x"]
    assert all(len(name) == len("sha256-") + 64 for name in os.listdir(theirs.blobs))
