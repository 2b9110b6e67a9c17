"""Reading and writing a store that Ollama made."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from tests.support.store_fixture import OllamaStore
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import (
    BlobNotFoundError,
    BrokenModelError,
    CloudDisabledError,
    DigestMismatchError,
    InvalidDigestError,
    InvalidNameError,
    ModelNotFoundError,
)
from trio_ollama.models.manifest import LICENSE, ConfigBlob, Layer, Manifest, Message
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store

HOUR = 3600


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def age(path: Path, seconds: float) -> None:
    then = now().timestamp() - seconds
    os.utime(path, (then, then))


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def names(store: Store) -> list[str]:
    return [entry.name.short for entry in store.list()]


# Reading


def test_a_model_is_read_with_all_its_layers(theirs: OllamaStore, store: Store) -> None:
    manifest = theirs.add(
        "llama3:8b",
        b"GGUF weights",
        layers=[
            theirs.layer("projector", b"eyes"),
            theirs.layer("adapter", b"lora"),
            theirs.layer("draft", b"quick"),
            theirs.layer("license", b"first"),
            theirs.layer("embed", b"obsolete"),
            theirs.layer("application/x-future", b"?"),
        ],
        config={"renderer": "", "requires": "0.14.0", "future": {"a": 1}},
        params={"stop": ["<|im_end|>"], "temperature": 0.5, "num_ctx": 4096},
        messages=[{"role": "user", "content": "hi", "images": None}],
        template="{{ .Prompt }}",
        system="Be brief.",
        license="second",
    )
    model = store.resolve("llama3:8b")
    assert model.name == ModelName.parse("llama3:8b")
    assert model.digest == hashlib.sha256(manifest).hexdigest()
    assert model.weights_path is not None
    assert model.weights_path.read_bytes() == b"GGUF weights"
    assert model.weights_digest == Digest.of(b"GGUF weights")
    assert [path.read_bytes() for path in (*model.projectors, *model.adapters)] == [b"eyes", b"lora"]
    assert model.projector_digests == (Digest.of(b"eyes"),)
    assert model.draft is not None
    assert model.draft.read_bytes() == b"quick"
    assert (model.template, model.system) == ("{{ .Prompt }}", "Be brief.")
    assert model.licenses == ("first", "second")
    assert model.params == {"stop": ["<|im_end|>"], "temperature": 0.5, "num_ctx": 4096}
    assert model.messages == (Message("user", "hi"),)
    assert (model.format, model.family, model.families) == ("gguf", "llama", ("llama",))
    assert (model.config.model_type, model.config.file_type, model.config.requires) == ("134.52M", "Q4_K_M", "0.14.0")
    sizes = [layer["size"] for layer in json.loads(manifest)["layers"]] + [json.loads(manifest)["config"]["size"]]
    assert model.size == sum(sizes)


def test_what_go_writes_as_null_reads_as_empty(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", config={"model_families": None, "capabilities": None}, params=None)
    assert store.resolve("m:x").families == ()
    theirs.add("n:x", layers=[theirs.layer("params", b"null"), theirs.layer("messages", b"null")])
    model = store.resolve("n:x")
    assert (model.params, model.messages) == ({}, ())


def test_the_last_weights_win_and_the_old_template_type_counts(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", b"one", layers=[theirs.layer("model", b"two"), theirs.layer("prompt", b"old")])
    model = store.resolve("m:x")
    assert model.weights_digest == Digest.of(b"two")
    assert model.template == "old"


def test_the_parent_is_on_the_weights(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", None, layers=[theirs.layer("model", b"w", **{"from": "base:latest"})])
    assert store.resolve("m:x").parent == "base:latest"


@pytest.mark.parametrize("asked", ["MiXed/Model:TAG", "mixed/model:tag", "registry.OLLAMA.ai/mixed/MODEL:Tag"])
def test_lookup_takes_the_spelling_on_disk(theirs: OllamaStore, store: Store, asked: str) -> None:
    theirs.add("Mixed/mOdel:tAg")
    assert store.resolve(asked).name.short == "Mixed/mOdel:tAg"


def test_of_names_that_differ_in_case_the_exact_one_is_preferred(theirs: OllamaStore, store: Store) -> None:
    theirs.add("model:a", b"lower")
    theirs.add("Model:a", b"upper")
    theirs.add("Model:b", b"only")
    assert store.resolve("model:a").weights_digest == Digest.of(b"lower")
    assert store.resolve("Model:a").weights_digest == Digest.of(b"upper")
    assert store.resolve("model:b").name.short == "Model:b"
    assert len(store.list()) == 3


def test_an_unknown_model_is_told_as_it_was_asked_for(store: Store) -> None:
    with pytest.raises(ModelNotFoundError, match=r"^model 'No/Such' not found$") as caught:
        store.resolve("No/Such")
    assert caught.value.status == 404
    with pytest.raises(InvalidNameError):
        store.resolve("../x")


def test_sources_of_a_name_are_obeyed(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:latest")
    theirs.add("stub:latest", None, config={"remote_host": "https://example.com", "remote_model": "big"})
    assert store.resolve("m:local").name.short == "m:latest"
    with pytest.raises(CloudDisabledError, match="ollama cloud is disabled"):
        store.resolve("m:cloud")
    assert store.resolve("stub").weights_path is None
    with pytest.raises(ModelNotFoundError):
        store.resolve("stub:local")


def test_the_list_is_newest_first_and_four_levels_deep(theirs: OllamaStore, store: Store) -> None:
    for place, name in enumerate(("b:x", "a:x", "hf.co/user/repo:Q4_K_M")):
        theirs.add(name, name.encode())
        age(theirs.manifest_path(name), 100 - place)
    deep = theirs.manifests / "h" / "n" / "m" / "t" / "deeper"
    deep.parent.mkdir(parents=True)
    deep.write_bytes(theirs.manifest_path("b:x").read_bytes())
    (theirs.manifests / "h" / "n" / "shallow").write_bytes(b"{}")
    assert names(store) == ["hf.co/user/repo:Q4_K_M", "a:x", "b:x"]
    first = store.list()[0]
    assert first.digest == hashlib.sha256(theirs.manifest_path("hf.co/user/repo:Q4_K_M").read_bytes()).hexdigest()
    assert first.modified_at.tzinfo is not None
    assert abs(first.modified_at.timestamp() - (now().timestamp() - 98)) < 10
    assert first.size == first.manifest.size > 0


def test_a_store_that_is_not_there_yet_is_empty_and_is_made_when_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "a" / "b")
    assert store.list() == ()
    assert not store.has_blob(digest_of(b"x"))
    assert store.prune(now()) == ()
    store.prepare()
    assert not (tmp_path / "a").exists()
    layer = store.put_blob_bytes(b"x", LICENSE)
    store.write_manifest(ModelName.parse("m"), Manifest(layers=(layer,)))
    assert names(store) == ["m:latest"]


# Blobs


def test_an_upload_appears_whole(store: Store, theirs: OllamaStore) -> None:
    data = os.urandom(100_000)
    with store.open_upload(digest_of(data)) as writer:
        writer.write(data[:70_000])
        writer.write(data[70_000:])
        assert not store.has_blob(digest_of(data))
        writer.commit()
    assert store.has_blob(digest_of(data))
    path = store.blob_path(digest_of(data).replace(":", "-"))
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o644
    assert len(list(theirs.blobs.iterdir())) == 1


def test_a_wrong_digest_leaves_nothing(store: Store, theirs: OllamaStore) -> None:
    given = digest_of(b"right").replace("sha256:", "sha256-")
    writer = store.open_upload(given)
    writer.write(b"wrong")
    with pytest.raises(DigestMismatchError) as caught:
        writer.commit()
    assert str(caught.value) == f'digest mismatch, expected "{given}", got "{digest_of(b"wrong")}"'
    assert caught.value.status == 400
    assert list(theirs.blobs.iterdir()) == []


def test_an_upload_that_is_given_up_leaves_nothing(store: Store, theirs: OllamaStore) -> None:
    with store.open_upload(digest_of(b"x")) as writer:
        writer.write(b"x")
    assert list(theirs.blobs.iterdir()) == []
    writer.abort()


def test_two_uploads_of_the_same_bytes_agree(store: Store, theirs: OllamaStore) -> None:
    first, second = store.open_upload(digest_of(b"x")), store.open_upload(digest_of(b"x"))
    for writer in (first, second):
        writer.write(b"x")
    assert first.commit() == second.commit() == Digest.of(b"x")
    first.abort()
    assert [path.read_bytes() for path in theirs.blobs.iterdir()] == [b"x"]


@pytest.mark.parametrize("digest", ["", "sha256:../../etc/passwd", "sha256-" + "0" * 63])
def test_no_digest_no_path(store: Store, digest: str) -> None:
    for action in (store.has_blob, store.blob_path, store.open_upload):
        with pytest.raises(InvalidDigestError):
            action(digest)


# Writing


def test_a_manifest_from_elsewhere_keeps_its_bytes(theirs: OllamaStore, store: Store) -> None:
    data = theirs.add("m:x").replace(b'"schemaVersion":2', b'"annotations":{"a":"b"}, "schemaVersion":2')
    entry = store.write_manifest(ModelName.parse("copy"), data)
    assert theirs.manifest_path("copy:latest").read_bytes() == data
    assert entry.digest == hashlib.sha256(data).hexdigest()


def test_our_own_manifests_look_like_ollamas(theirs: OllamaStore, store: Store) -> None:
    layer = Layer("application/vnd.ollama.image.model", theirs.blob(b"w"), 1, source="base:latest")
    config = Layer("application/vnd.docker.container.image.v1+json", theirs.blob(b"{}"), 2)
    store.write_manifest(ModelName.parse("m"), Manifest(config=config, layers=(layer,)))
    path = theirs.manifest_path("m:latest")
    assert json.loads(path.read_bytes()) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": config.media_type, "digest": config.digest, "size": 2},
        "layers": [{"mediaType": layer.media_type, "digest": layer.digest, "size": 1, "from": "base:latest"}],
    }
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_new_name_joins_the_spelling_that_is_there(theirs: OllamaStore, store: Store) -> None:
    data = theirs.add("Team/Model:one")
    assert store.write_manifest(ModelName.parse("team/model:Two"), data).name.short == "Team/Model:Two"
    assert store.write_manifest(ModelName.parse("TEAM/MODEL:ONE"), data).name.short == "Team/Model:one"
    assert len(list((theirs.manifests / "registry.ollama.ai").iterdir())) == 1


def test_a_manifest_without_its_blobs_is_not_written(theirs: OllamaStore, store: Store) -> None:
    data = theirs.add("m:x", b"weights")
    store.blob_path(digest_of(b"weights")).unlink()
    with pytest.raises(BlobNotFoundError):
        store.write_manifest(ModelName.parse("n"), data)
    with pytest.raises(BrokenModelError):
        store.write_manifest(ModelName.parse("n"), b"{")
    assert names(store) == ["m:x"]


def test_replacing_removes_only_what_nobody_else_uses(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", b"old", system="shared")
    theirs.add("other:x", b"other", system="shared")
    new = theirs.add("source:x", b"new")
    store.write_manifest(ModelName.parse("m:x"), new)
    assert not store.has_blob(digest_of(b"old"))
    assert store.has_blob(digest_of(b"shared"))
    theirs.add("m:x", b"old")
    store.write_manifest(ModelName.parse("m:x"), new, prune=False)
    assert store.has_blob(digest_of(b"old"))


def test_copy_shares_blobs(theirs: OllamaStore, store: Store) -> None:
    data = theirs.add("m:x")
    before = len(list(theirs.blobs.iterdir()))
    store.copy("M:x", "ns/copy")
    assert theirs.manifest_path("ns/copy:latest").read_bytes() == data
    assert len(list(theirs.blobs.iterdir())) == before
    store.copy("m:x", "m:X")
    assert sorted(names(store)) == ["m:x", "ns/copy:latest"]


def test_copy_tells_what_is_wrong(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x")
    with pytest.raises(InvalidNameError, match=r'^source "a b" is invalid$'):
        store.copy("a b", "c")
    with pytest.raises(InvalidNameError, match=r'^destination "a b" is invalid$'):
        store.copy("m:x", "a b")
    with pytest.raises(ModelNotFoundError, match=r'^model "nope" not found$'):
        store.copy("nope", "c")


def test_delete_removes_what_was_its_alone(theirs: OllamaStore, store: Store) -> None:
    theirs.add("ns/m:x", b"mine", system="shared")
    theirs.add("other:x", b"other", system="shared")
    removal = store.delete("NS/m:x")
    assert removal.name.short == "ns/m:x"
    assert Digest.of(b"mine") in removal.unused
    assert Digest.of(b"shared") not in removal.unused
    assert not store.has_blob(digest_of(b"mine"))
    assert store.has_blob(digest_of(b"shared"))
    assert not theirs.manifest_path("ns/m:x").parent.parent.exists()
    assert theirs.manifests.is_dir()
    assert store.resolve("other:x").system == "shared"
    store.delete("other:x")
    assert list(theirs.blobs.iterdir()) == []
    assert list(theirs.manifests.iterdir()) == []


def test_delete_tells_what_is_wrong(store: Store) -> None:
    with pytest.raises(InvalidNameError, match=r'^name "a b" is invalid$'):
        store.delete("a b")
    with pytest.raises(ModelNotFoundError, match=r"^model 'nope' not found$"):
        store.delete("nope")


# Keeping order


def test_old_blob_names_are_brought_up_to_date(theirs: OllamaStore, store: Store) -> None:
    digest = digest_of(b"x")
    (theirs.blobs / digest).write_bytes(b"x")
    store.prepare()
    assert store.blob_path(digest).read_bytes() == b"x"
    assert [path.name for path in theirs.blobs.iterdir()] == [digest.replace(":", "-")]


def test_an_old_name_that_is_taken_is_pruned(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", b"used")
    digest = digest_of(b"used")
    again = theirs.blobs / digest
    again.write_bytes(b"used")
    age(again, 2 * HOUR)
    store.prepare()
    assert again.exists()
    assert store.prune(now()) == (digest,)
    assert store.blob_path(digest).read_bytes() == b"used"


def test_prune_removes_old_unused_files_only(theirs: OllamaStore, store: Store) -> None:
    theirs.add("m:x", b"used", system="text")
    expected = set(theirs.files())
    old = [theirs.blobs / name for name in ("sha256-" + "1" * 64, "sha256-" + "2" * 64 + "-partial", "notes.txt")]
    young = theirs.blobs / ("sha256-" + "3" * 64)
    for path in (*old, young):
        path.write_bytes(b"?")
    for path in theirs.blobs.iterdir():
        age(path, 2 * HOUR)
    age(young, HOUR - 60)
    (theirs.blobs / "folder").mkdir()
    (theirs.manifests / "empty" / "dir").mkdir(parents=True)
    crashed = theirs.manifest_path("m:x").parent / ".x.tmp"
    crashed.write_bytes(b"{")
    age(crashed, 2 * HOUR)
    assert sorted(store.prune(now())) == sorted(path.name for path in old)
    assert set(theirs.files()) == expected | {f"blobs/{young.name}"}
    assert (theirs.blobs / "folder").is_dir()
    assert not (theirs.manifests / "empty").exists()
    assert store.prune(now() + datetime.timedelta(hours=1)) == (young.name,)


def test_reuse_protects_a_blob_from_pruning(theirs: OllamaStore, store: Store) -> None:
    store.put_blob_bytes(b"x", LICENSE)
    path = store.blob_path(digest_of(b"x"))
    age(path, 2 * HOUR)
    theirs.add("m:x")
    store.put_blob_bytes(b"x", LICENSE)
    assert store.prune(now()) == ()
    assert path.exists()


def test_writers_at_the_same_time_lose_nothing(theirs: OllamaStore, store: Store) -> None:
    """Copies and deletes of models that share one blob, from many threads: it stays, as long as one model has it."""
    data = theirs.add("base:x", b"shared")
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                store.write_manifest(ModelName.parse(f"m{number}"), data)
                store.delete(f"m{number}")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert names(store) == ["base:x"]
    assert store.has_blob(digest_of(b"shared"))


def test_a_config_without_values_is_small() -> None:
    assert msgspec.json.encode(ConfigBlob(model_format="gguf")) == b'{"model_format":"gguf"}'
