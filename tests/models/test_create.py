"""Making models from uploaded files and from other models."""

from __future__ import annotations

import datetime
import json
from typing import Any

import msgspec
import pytest

from tests.support.raw_gguf import raw_gguf
from tests.support.store_fixture import OllamaStore
from trio_ollama.models.create import CreateRequest, Progress, create
from trio_ollama.models.details import details
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import ModelsError
from trio_ollama.models.manifest import DRAFT, Message
from trio_ollama.models.store import Store

MODEL = raw_gguf({"llama.block_count": 2, "general.file_type": 15}, tensors=[("t", (256, 2), 12, 0)], data=288)
ADAPTER = raw_gguf({"general.type": "adapter"})
PROJECTOR = raw_gguf({"general.architecture": "clip", "clip.has_vision_encoder": True})


def run(store: Store, **fields: Any) -> list[str]:
    """Create a model and return the statuses."""
    return [progress.status for progress in create(store, CreateRequest(**fields))]


def test_a_model_from_a_gguf_file(store: Store, theirs: OllamaStore, tiny_bytes: bytes) -> None:
    digest = theirs.blob(tiny_bytes)
    statuses = run(store, model="Tiny", files={"sub/tiny.gguf": digest}, system="Be brief.")
    system = Digest.of(b"Be brief.")
    model = store.resolve("tiny")
    assert model.manifest.config is not None
    assert statuses == [
        "parsing GGUF",
        "validating GGUF model",
        f"using existing layer {digest}",
        f"creating new layer {system}",
        f"creating new layer {model.manifest.config.digest}",
        "writing manifest",
        "success",
    ]
    assert model.name.short == "Tiny:latest"
    assert model.weights_digest == Digest.parse(digest)
    assert model.system == "Be brief."
    assert model.manifest.size > len(tiny_bytes)
    parameters = sum(layer.size for layer in model.manifest.of_type("application/vnd.ollama.image.model"))
    assert parameters == len(tiny_bytes)
    described = details(model)
    assert described == {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": described["parameter_size"],
        "quantization_level": "F32",
    }
    assert described["parameter_size"].endswith("K")
    assert json.loads(store.blob_path(model.manifest.config.digest).read_bytes())["architecture"] == "amd64"
    # The same again: everything is there already.
    again = run(store, model="tiny", files={"sub/tiny.gguf": digest}, system="Be brief.")
    assert not any(status.startswith("creating") for status in again)


def test_files_are_told_apart_by_what_is_in_them(store: Store, theirs: OllamaStore) -> None:
    files = {"a.gguf": theirs.blob(PROJECTOR), "b.gguf": theirs.blob(ADAPTER), "c": theirs.blob(MODEL)}
    assert run(store, model="m", files=files)[:4] == ["parsing GGUF"] * 3 + ["validating GGUF model"]
    model = store.resolve("m")
    assert model.weights_digest == Digest.of(MODEL)
    assert model.projector_digests == (Digest.of(PROJECTOR),)
    assert [path.read_bytes() for path in model.adapters] == [ADAPTER]
    assert model.families == ("llama", "clip")
    assert model.family == "llama"


@pytest.mark.parametrize(
    "values",
    [
        {"general.type": "mmproj"},
        {"general.type": "Projector"},
        {"general.architecture": "clip"},
        {"general.architecture": "x", "x.vision.block_count": 3},
    ],
)
def test_every_kind_of_projector_is_known(store: Store, theirs: OllamaStore, values: dict[str, Any]) -> None:
    projector = raw_gguf(values)
    run(store, model="m", files={"m.gguf": theirs.blob(MODEL), "p.gguf": theirs.blob(projector)})
    assert store.resolve("m").projector_digests == (Digest.of(projector),)


def test_a_model_from_a_model_inherits_and_replaces(store: Store, theirs: OllamaStore) -> None:
    theirs.add(
        "base:x",
        MODEL,
        config={"capabilities": ["completion"], "model_type": "8.0B"},
        params={"temperature": 0.1, "stop": ["a"]},
        messages=[{"role": "user", "content": "old"}],
        system="old system",
        license="old license",
        layers=[theirs.layer("prompt", b"old template")],
    )
    statuses = run(
        store,
        model="new",
        source="Base:X",
        template="new template",
        system="new system",
        license=["new license", ""],
        parameters={"stop": ["b", "c"], "seed": 1},
        messages=[Message("user", "new")],
        parser="qwen3",
        adapters={"l.gguf": theirs.blob(ADAPTER)},
    )
    model = store.resolve("new")
    assert model.parent == "base:x"
    assert model.weights_digest == Digest.of(MODEL)
    assert (model.template, model.system) == ("new template", "new system")
    assert model.licenses == ("old license", "new license")
    assert model.params == {"temperature": 0.1, "stop": ["b", "c"], "seed": 1}
    assert model.messages == (Message("user", "new"),)
    assert len(model.adapters) == 1
    assert (model.config.capabilities, model.config.model_type, model.config.parser) == (
        ("completion",),
        "8.0B",
        "qwen3",
    )
    assert statuses[0] == "parsing GGUF"
    assert statuses[-2:] == ["writing manifest", "success"]
    assert f"using existing layer {Digest.of(b'old system')}" not in statuses
    assert store.resolve("base:x").system == "old system"


def test_what_is_not_given_is_inherited(store: Store, theirs: OllamaStore) -> None:
    messages = [{"role": "user", "content": "hi"}]
    theirs.add("base:x", MODEL, params={"seed": 1}, messages=messages, system="s", template="t")
    run(store, model="new", source="base:x", messages=[], parameters={}, license="")
    old, new = store.resolve("base:x"), store.resolve("new")
    assert (new.params, new.messages, new.system, new.template) == (old.params, old.messages, old.system, old.template)


def test_what_a_conversation_saves(store: Store, theirs: OllamaStore) -> None:
    """From a model, with the options, the system and the messages of the session; then with more of them."""
    theirs.add("base:x", MODEL, params={"seed": 1, "stop": ["a"]}, config={"renderer": "r", "requires": "0.1.0"})
    talk = [Message("user", "hi"), Message("assistant", "hello")]
    run(store, model="saved", source="base:x", system="s", parameters={"num_ctx": 64.0, "top_k": None}, messages=talk)
    run(store, model="saved", source="saved", system="s", parameters={}, messages=[*talk, Message("user", "again")])
    saved = store.resolve("saved")
    assert saved.params == {"seed": 1, "stop": ["a"], "num_ctx": 64}
    assert type(saved.params["num_ctx"]) is int
    assert saved.messages == (*talk, Message("user", "again"))
    assert (saved.system, saved.config.renderer, saved.config.requires) == ("s", "r", "0.1.0")
    assert saved.parent == "saved:latest"
    assert len(saved.manifest.layers or ()) == 4


def test_a_new_draft_and_a_new_projector_replace_the_inherited_ones(store: Store, theirs: OllamaStore) -> None:
    eyes = raw_gguf({"general.architecture": "clip", "clip.has_audio_encoder": True})
    theirs.add("base:x", MODEL, layers=[theirs.layer("projector", PROJECTOR), theirs.layer("draft", b"old")])
    run(store, model="new", source="base:x", files={"e.gguf": theirs.blob(eyes)}, draft_files={"d": theirs.blob(MODEL)})
    model = store.resolve("new")
    assert model.projector_digests == (Digest.of(eyes),)
    assert [layer.digest for layer in model.manifest.of_type(DRAFT)] == [str(Digest.of(MODEL))]
    assert model.draft is not None


def test_what_the_request_says_of_the_model_counts(store: Store, theirs: OllamaStore) -> None:
    info = {
        "model_family": "new",
        "base_name": "b",
        "quantization_level": "Q2_K",
        "parameter_size": "7B",
        "context_length": 4096.0,
        "embedding_length": 64,
        "capabilities": ["tools"],
        "later": [1],
    }
    run(store, model="m", files={"m.gguf": theirs.blob(MODEL)}, info=info)
    config = store.resolve("m").config
    assert (config.model_family, config.model_families, config.base_name) == ("new", ("new",), "b")
    assert (config.file_type, config.model_type) == ("Q2_K", "7B")
    assert (config.context_length, config.embedding_length, config.capabilities) == (4096, 64, ("tools",))


@pytest.mark.parametrize(("architecture", "name"), [("gemma4", "gemma4"), ("nemotron_h_moe", "nemotron-3-nano")])
def test_some_architectures_name_a_renderer(architecture: str, name: str, store: Store, theirs: OllamaStore) -> None:
    weights = raw_gguf({"general.architecture": architecture})
    run(store, model="m", files={"m.gguf": theirs.blob(weights)})
    config = store.resolve("m").config
    assert (config.renderer, config.parser) == (name, name)
    run(store, model="m", files={"m.gguf": theirs.blob(weights)}, renderer="other")
    assert store.resolve("m").config.renderer == "other"


def test_the_files_beside_the_weights_of_a_folder_are_not_looked_at(store: Store, theirs: OllamaStore) -> None:
    files = {"config.json": theirs.blob(b"{}"), "m.gguf": theirs.blob(MODEL), "tokenizer.model": theirs.blob(b"t")}
    run(store, model="m", files=files)
    assert store.resolve("m").weights_digest == Digest.of(MODEL)


def test_replacing_a_model_by_itself_keeps_it_whole(store: Store, theirs: OllamaStore) -> None:
    theirs.add("m:x", MODEL, system="one", config={"renderer": "r"})
    run(store, model="M:X", source="m:x", system="two")
    model = store.resolve("m:x")
    assert (model.system, model.config.renderer) == ("two", "r")
    assert not store.has_blob(str(Digest.of(b"one")))
    assert len(store.list()) == 1
    run(store, model="m:x", source="m:x", system="three")
    list(create(store, CreateRequest(model="m:x", source="m:x", system="four"), prune=False))
    assert store.has_blob(str(Digest.of(b"three")))


def test_an_abandoned_create_makes_no_model(store: Store, theirs: OllamaStore) -> None:
    steps = create(store, CreateRequest(model="m", files={"m.gguf": theirs.blob(MODEL)}, system="s"))
    for progress in steps:
        if progress.status == "writing manifest":
            break
    steps.close()
    assert store.list() == ()
    assert store.prune(datetime.datetime.now(datetime.UTC)) == ()


_SOME = "sha256:" + "1" * 64


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"model": "", "source": "base:x"}, 400, "invalid model name"),
        ({"model": "a b", "source": "base:x"}, 400, "invalid model name"),
        ({}, 400, "neither 'from' or 'files' was specified"),
        ({"files": {}}, 400, "no files provided to convert"),
        ({"files": {"/abs.gguf": _SOME}}, 400, "file path must be relative"),
        ({"files": {"../up.gguf": _SOME}}, 400, "file path must be relative"),
        ({"files": {"a/../../up.gguf": _SOME}}, 400, "file path must be relative"),
        ({"files": {"": _SOME}}, 400, "file path must be relative"),
        ({"adapters": {"/a": _SOME}, "source": "base:x"}, 400, "file path must be relative"),
        ({"files": {"m.gguf": ""}}, 400, "invalid digest format"),
        ({"files": {"m.gguf": "sha256:../x"}}, 400, "invalid digest format"),
        ({"files": {"m.gguf": _SOME}}, 404, f'blob "{_SOME}" not found'),
        ({"files": {"m.gguf": "JUNK"}}, 400, "supplied file was not in GGUF format"),
        ({"files": {"m.bin": "JUNK"}}, 400, "unknown type"),
        ({"files": {"m.safetensors": "JUNK"}}, 400, "m.safetensors: this server runs GGUF files only: convert"),
        ({"files": {"config.json": "JUNK"}}, 400, "unknown type"),
        ({"files": {"m-00001-of-00002.gguf": "MODEL"}}, 400, "m-00001-of-00002.gguf is not what its name says: it is"),
        ({"files": {"m-00002-of-00002.gguf": "SPLIT"}}, 400, "m-00002-of-00002.gguf is not what its name says: it is"),
        ({"files": {"m.gguf": "SPLIT"}}, 400, "m.gguf is part 1 of 2 of a split GGUF: give it with all"),
        ({"files": {"d/m-00001-of-00002.gguf": "SPLIT"}}, 400, "a part of the split GGUF is missing: d/m-00002-of-"),
        ({"files": {"m.gguf": "CUT"}}, 400, "m.gguf: unsupported model format: the file ends after"),
        ({"files": {"m.gguf": "MODEL", "n.gguf": "OTHER"}}, 400, "only one model file is supported"),
        ({"files": {"m.gguf": "ADAPTER"}}, 400, "no model file among the files"),
        ({"source": "base:x", "files": {"m.gguf": "MODEL"}}, 400, "a model file cannot be combined with 'from'"),
        ({"source": "base:x", "adapters": {"a": _SOME, "b": _SOME}}, 400, "only one adapter is currently supported"),
        ({"source": "absent"}, 404, 'model "absent" not found, try pulling it first'),
        ({"source": "a b"}, 400, "invalid model name"),
        ({"source": "base:x", "quantize": "Q4_0"}, 400, "quantization is only supported for F16, BF16 and F32 models"),
        ({"source": "base:x", "draft_quantize": "Q4_0"}, 400, "--draft-quantize requires a DRAFT model"),
        ({"source": "base:x", "remote_host": "h"}, 400, "remote models are not supported"),
        ({"source": "base:x", "draft_files": {"a": "MODEL", "b": "MODEL"}}, 400, "only one draft is supported"),
        ({"source": "base:x", "template": "{{ if"}, 400, "template error: "),
        ({"source": "base:x", "parameters": {"seed": "1"}}, 400, 'option "seed" must be of type integer'),
        ({"source": "base:x", "parameters": {"seed": True}}, 400, 'option "seed" must be of type integer'),
        ({"source": "base:x", "parameters": {"top_p": "1"}}, 400, 'option "top_p" must be of type float32'),
        ({"source": "base:x", "parameters": {"use_mmap": 1}}, 400, 'option "use_mmap" must be of type boolean'),
        ({"source": "base:x", "parameters": {"stop": "a"}}, 400, 'option "stop" must be of type array'),
        ({"source": "base:x", "parameters": {"stop": [1]}}, 400, 'option "stop" must be of an array of strings'),
        ({"source": "base:x", "info": {"base_name": 1}}, 400, 'info field "base_name" must be a string'),
        ({"source": "base:x", "info": {"context_length": "1"}}, 400, 'info field "context_length" must be a number'),
        ({"source": "base:x", "info": {"embedding_length": -1}}, 400, 'info field "embedding_length" must be a non-'),
        ({"source": "base:x", "info": {"capabilities": "tools"}}, 400, 'info field "capabilities" must be an array'),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_before_the_first_status(
    store: Store, theirs: OllamaStore, fields: dict[str, Any], status: int, text: str
) -> None:
    theirs.add("base:x", MODEL)
    files = {"JUNK": b"junk!", "MODEL": MODEL, "CUT": MODEL[:-1], "ADAPTER": ADAPTER}
    files |= {"SPLIT": raw_gguf({"split.count": 2}), "OTHER": raw_gguf({"llama.block_count": 3})}
    for field in {"files", "draft_files"} & fields.keys():
        named = {path: theirs.blob(files[name]) if name in files else name for path, name in fields[field].items()}
        fields = fields | {field: named}
    before = theirs.files()
    with pytest.raises(ModelsError) as caught:
        next(create(store, CreateRequest(**{"model": "m", **fields})))
    assert caught.value.status == status
    assert str(caught.value).startswith(text)
    assert theirs.files() == before


def test_a_request_is_decoded_from_its_body_and_progress_is_encoded_without_zeros() -> None:
    body = b'{"model":"m","from":"base","license":"l","messages":[{"role":"user","content":"hi"}],"unknown":1}'
    request = msgspec.json.decode(body, type=CreateRequest)
    assert (request.source, request.licenses, request.messages) == ("base", ("l",), [Message("user", "hi")])
    assert msgspec.json.encode(Progress("success")) == b'{"status":"success"}'
