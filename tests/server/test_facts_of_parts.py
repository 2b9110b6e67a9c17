"""What is known of projectors, adapters and drafts before anything is started with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_gguf import raw_gguf
from tests.support.store_fixture import OllamaStore
from trio_ollama.models.gguf import read_metadata
from trio_ollama.models.store import Store
from trio_ollama.scheduler import ModelFacts
from trio_ollama.server.facts import model_facts

HEADS: dict[str, Any] = {"nextn_predict_layers": 1}


def gguf(arch: str = "llama", *tensors: str, **values: Any) -> bytes:
    keys = {"general.architecture": arch} | {f"{arch}.{name}": value for name, value in values.items()}
    return raw_gguf(keys, tuple((name, (4,), 0, 0) for name in tensors), data=64)


def facts(tmp_path: Path, weights: bytes, **layers: bytes) -> ModelFacts:
    store = OllamaStore(tmp_path / "models")
    store.add("m:x", weights, layers=[store.layer(kind, data) for kind, data in layers.items()])
    model = Store(store.root).resolve("m:x")
    assert model.weights_path is not None
    return model_facts(model, read_metadata(model.weights_path), ["completion"])


@pytest.mark.parametrize(
    ("arch", "tensors", "inside"),
    [
        ("gemma3", ("v.patch_embd.weight",), True),
        ("gemma3", ("blk.0.v.weight",), False),
        ("llama", ("v.patch_embd.weight",), False),
    ],
)
def test_an_image_encoder_inside_the_weights(tmp_path: Path, arch: str, tensors: tuple[str, ...], inside: bool) -> None:
    found = facts(tmp_path, gguf(arch, *tensors))
    assert found.projectors == ((found.path,) if inside else ())
    found = facts(tmp_path, gguf(arch, *tensors), projector=b"eyes")
    assert found.projectors != (found.path,)
    assert (len(found.projectors), found.projector_size) == (1, 4)


@pytest.mark.parametrize(("arch", "tokens"), [("qwen25vl", 1024), ("qwen2", 0), ("llama", 0)])
def test_some_need_many_tokens_to_read(tmp_path: Path, arch: str, tokens: int) -> None:
    assert facts(tmp_path, gguf(arch)).image_min_tokens == tokens


@pytest.mark.parametrize(
    ("weights", "draft", "kind"),
    [
        (gguf(), None, ""),
        (gguf(**HEADS), None, "mtp"),
        (gguf("qwen35", "mtp.fc.weight"), None, "mtp"),
        (gguf("llama", "mtp.fc.weight"), None, ""),
        (gguf(), gguf("llama", block_count=1), "simple"),
        (gguf(**HEADS), gguf(), "simple"),
        (gguf(), gguf("qwen35", **HEADS), "mtp"),
        (gguf(), gguf("dflash"), "dflash"),
        (gguf(), b"junk", "simple"),
    ],
)
def test_who_drafts(tmp_path: Path, weights: bytes, draft: bytes | None, kind: str) -> None:
    found = facts(tmp_path, weights, **({"draft": draft} if draft is not None else {}))
    assert (found.draft_kind, found.draft is not None) == (kind, draft is not None)
