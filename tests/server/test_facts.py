"""From a model's files to the facts that it is planned with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.measured_child import facts_of
from tests.support.raw_gguf import RawTensor, raw_gguf
from tests.support.shapes import SMOLLM2
from tests.support.smollm2 import PACKAGE, find_smollm2
from tests.support.store_fixture import OllamaStore
from trio_ollama.models.gguf import read_metadata
from trio_ollama.models.store import Store
from trio_ollama.scheduler import ModelFacts, Shape
from trio_ollama.server.facts import model_facts
from trio_ollama.server.shape import projector_size, shape


def header(tmp_path: Path, values: dict[str, Any], arch: str = "llama", tensors: tuple[RawTensor, ...] = ()) -> Path:
    """A file with these keys of its architecture; those with a dot before them are written as they are."""
    path = tmp_path / "m.gguf"
    keys = {key[1:] if key.startswith(".") else f"{arch}.{key}": value for key, value in values.items()}
    path.write_bytes(raw_gguf({"general.architecture": arch} | keys, tensors, data=1024))
    return path


def shape_of(tmp_path: Path, values: dict[str, Any], arch: str = "llama") -> Shape:
    return shape(read_metadata(header(tmp_path, values, arch)))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        (
            {"block_count": 32, "attention.head_count": 32, "attention.head_count_kv": 8, "embedding_length": 4096},
            {"layers": 32, "kv_heads": 8, "head_dim": 128},
        ),
        # Without the key: one head, although llama.cpp takes as many as there are heads.
        ({"attention.head_count": 32, "embedding_length": 4096}, {"kv_heads": 1, "head_dim": 128}),
        (
            {"attention.head_count": [8, 16], "attention.head_count_kv": [4, 0, 2], "embedding_length": 100},
            {"kv_heads": 1, "head_dim": 6},
        ),
        ({"attention.head_count": 0, "embedding_length": 100}, {"head_dim": 0}),
        ({"embedding_length": 100}, {"head_dim": 100}),
        ({"context_length": 2048, "pooling_type": 0}, {"train_context": 2048, "pooled": True}),
        ({"block_count": "many", "context_length": True}, {}),
    ],
)
def test_the_formulas_numbers_have_upstreams_defaults(
    tmp_path: Path, values: dict[str, Any], expected: dict[str, Any]
) -> None:
    facts = facts_of(header(tmp_path, values))
    usual = {"layers": 0, "kv_heads": 1, "head_dim": 0, "train_context": 0, "pooled": False}
    names = usual.keys()
    assert {name: getattr(facts, name) for name in names} == usual | expected
    assert facts.file_size == (tmp_path / "m.gguf").stat().st_size


GQA = {"block_count": 4, "embedding_length": 512, "attention.head_count": 8, "attention.head_count_kv": 2}
ROW = 2 * 64 * 2
"""Elements of keys and values that one token has in one layer of GQA."""


@pytest.mark.parametrize(
    ("arch", "values", "cached", "windowed"),
    [
        ("llama", GQA, 4 * ROW, 0),
        ("llama", {key: value for key, value in GQA.items() if not key.endswith("kv")}, 4 * 8 * 64 * 2, 0),
        ("llama", GQA | {"attention.head_count_kv": [2, 0, 4, 2]}, 4 * ROW, 0),
        ("llama", GQA | {"attention.key_length": 128, "attention.value_length": 32}, 4 * 2 * 160, 0),
        ("deepseek2", GQA | {"attention.key_length": 576, "attention.key_length_mla": 192}, 4 * 2 * 576, 0),
        ("llama", GQA | {"attention.sliding_window": 512}, 4 * ROW, 0),  # not heeded by the engine
        ("gemma2", GQA, 2 * ROW, 2 * ROW),  # every second one, and the window has a default
        ("gemma3", GQA | {"attention.sliding_window": 512, "block_count": 12}, 2 * ROW, 10 * ROW),
        ("gemma3", GQA | {"attention.sliding_window": 512, "block_count": 11}, ROW, 10 * ROW),  # the last of six
        ("gemma3", GQA | {"block_count": 12}, 12 * ROW, 0),
        ("smallthinker", GQA | {"attention.sliding_window": 512, "block_count": 5}, 2 * ROW, 3 * ROW),  # the first
        ("smallthinker", GQA | {"attention.sliding_window": 512}, ROW, 3 * ROW),
        (
            "gemma3",
            GQA | {"attention.sliding_window": 512, "attention.sliding_window_pattern": 2},
            2 * ROW,
            2 * ROW,
        ),
        (
            "gemma4",
            GQA
            | {
                "attention.sliding_window": 512,
                "attention.sliding_window_pattern": [1, 1, 0],
                "attention.key_length_swa": 32,
                "attention.value_length_swa": 32,
            },
            2 * ROW,
            2 * ROW // 2,
        ),
        ("gemma3n", GQA | {"block_count": 35, "attention.sliding_window": 512}, 4 * ROW, 16 * ROW),
        ("gemma4", GQA | {"attention.shared_kv_layers": 3}, ROW, 0),
        ("nomic-bert", GQA, 0, 0),
        ("mamba", {"block_count": 4, "embedding_length": 512, "attention.head_count": 0}, 0, 0),
        ("llama", {"block_count": 4_000_000_000, "attention.head_count": 1, "embedding_length": 1}, 2048, 0),
    ],
)
def test_keys_and_values_by_layer(
    tmp_path: Path, arch: str, values: dict[str, Any], cached: int, windowed: int
) -> None:
    found = shape_of(tmp_path, values, arch)
    assert (found.cached, found.window_cached) == (cached, windowed)


SSM = {
    "block_count": 8,
    "embedding_length": 512,
    "ssm.inner_size": 1024,
    "ssm.state_size": 16,
    "ssm.conv_kernel": 4,
}
STATE = 4 * (3 * 1024 + 16 * 1024)


@pytest.mark.parametrize(
    ("arch", "values", "state", "cached"),
    [
        ("mamba", SSM | {"attention.head_count": 0}, 8 * STATE, 0),  # 0.59 MiB, as the engine says
        ("mamba2", SSM | {"attention.head_count": 0, "ssm.group_count": 2}, 8 * (STATE + 4 * 3 * 2 * 2 * 16), 0),
        ("jamba", SSM | {"attention.head_count": 8, "attention.head_count_kv": [0, 2] * 4}, 4 * STATE, 4 * ROW),
        (
            "qwen3next",
            SSM | {"attention.head_count": 8, "attention.head_count_kv": 2, "full_attention_interval": 4},
            6 * STATE,
            2 * ROW,
        ),
        (
            "qwen3next",
            SSM
            | {"attention.head_count": 8, "attention.head_count_kv": 2, "full_attention_interval": 4, "block_count": 7},
            6 * STATE,
            ROW,
        ),
        ("falcon-h1", SSM | {"attention.head_count": 8, "attention.head_count_kv": 2}, 8 * STATE, 8 * ROW),
        ("rwkv7", {"block_count": 2, "embedding_length": 512, "wkv.head_size": 64}, 2 * 4 * 512 * 66, 0),
        (
            "lfm2",
            GQA | {"attention.head_count_kv": [0, 2, 0, 0], "shortconv.l_cache": 3},
            3 * 4 * 512 * 2,
            ROW,
        ),
    ],
)
def test_states_of_recurrent_layers(tmp_path: Path, arch: str, values: dict[str, Any], state: int, cached: int) -> None:
    found = shape_of(tmp_path, values, arch)
    assert (found.state, found.cached) == (state, cached)


def test_widths_and_tables(tmp_path: Path) -> None:
    tensors = (("token_embd.weight", (512, 4), 8, 0),)  # Q8_0
    values = GQA | {
        "feed_forward_length": [100, 300],
        ".tokenizer.ggml.tokens": ["a"] * 2000,
        ".tokenizer.ggml.merges": ["a b"] * 5,
    }
    path = header(tmp_path, values, tensors=tensors)
    path.write_bytes(path.read_bytes() + bytes(4096))
    found = shape(read_metadata(path))
    assert (found.vocabulary, found.merges, found.feed_forward) == (2000, 5, 300)
    assert found.weights == 1024 + 4096
    assert (found.token_embeddings, found.tied) == (4 * 512 // 32 * 34, True)
    assert (found.heads, found.queries, found.keys) == (8, 512, 128)
    assert (found.head, found.attends) == (True, True)


def test_a_token_uses_some_experts_and_the_shared_one(tmp_path: Path) -> None:
    experts = {"expert_used_count": 4, "feed_forward_length": 100}
    assert shape_of(tmp_path, experts).feed_forward == 400
    experts |= {"expert_feed_forward_length": 200, "expert_shared_feed_forward_length": 50}
    assert shape_of(tmp_path, experts).feed_forward == 850


def test_encoders_have_no_logits(tmp_path: Path) -> None:
    assert not shape_of(tmp_path, GQA, "nomic-bert").head
    assert shape_of(tmp_path, GQA, "qwen3").head


def test_a_projector_counts_with_the_scores_of_all_patches(tmp_path: Path) -> None:
    """Gemma 3's: 4096 patches, 16 heads."""
    values = {
        ".clip.vision.image_size": 896,
        ".clip.vision.patch_size": 14,
        ".clip.vision.embedding_length": 1152,
        ".clip.vision.feed_forward_length": 4304,
        ".clip.vision.attention.head_count": 16,
    }
    path = header(tmp_path, values, "clip")
    scratch = projector_size(read_metadata(path)) - path.stat().st_size
    assert scratch == 4 * 4096 * (16 * 4096 + 6 * 1152)
    assert projector_size(read_metadata(header(tmp_path, {}, "clip"))) == (tmp_path / "m.gguf").stat().st_size


def stored(tmp_path: Path, *layers: tuple[str, bytes]) -> ModelFacts:
    store = OllamaStore(tmp_path / "models")
    weights = raw_gguf({f"llama.{key}": value for key, value in GQA.items()})
    store.add("m:x", weights, layers=[store.layer(kind, data) for kind, data in layers])
    model = Store(store.root).resolve("m:x")
    assert model.weights_path is not None
    return model_facts(model, read_metadata(model.weights_path), ["completion"])


def test_what_is_loaded_beside_the_model(tmp_path: Path) -> None:
    draft = raw_gguf({f"llama.{key}": value for key, value in (GQA | {"block_count": 1}).items()})
    found = stored(tmp_path, ("projector", b"GGUF junk"), ("adapter", bytes(100)), ("draft", draft)).shape
    assert found is not None
    assert found.draft is not None
    assert (found.projector, found.adapters, found.draft.cached) == (9, 100, ROW)
    assert found.draft.weights == 0  # nothing but a header


def test_a_damaged_draft_is_left_to_the_load(tmp_path: Path) -> None:
    facts = stored(tmp_path, ("draft", b"no GGUF"))
    assert facts.draft is not None
    assert facts.shape is not None
    assert facts.shape.draft is None


@pytest.mark.smollm2
def test_the_shape_of_a_real_model() -> None:
    path = find_smollm2()
    if path is None:
        pytest.skip(f"{PACKAGE} is not installed")
    found = facts_of(path).shape
    assert found is not None
    assert (found.cached, found.feed_forward, found.heads) == (SMOLLM2.cached, SMOLLM2.feed_forward, SMOLLM2.heads)
    assert (found.vocabulary, found.merges, found.tied) == (SMOLLM2.vocabulary, SMOLLM2.merges, True)
    assert found.weights == pytest.approx(SMOLLM2.weights, rel=0.001)
    assert found.token_embeddings > 10 << 20
