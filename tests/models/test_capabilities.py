"""What models can do, told from headers as those of models that people run; and what `show` says of the headers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.raw_gguf import raw_gguf
from tests.support.smollm2 import PACKAGE, find_smollm2
from tests.support.store_fixture import OllamaStore
from trio_ollama.models.create import CreateRequest, create
from trio_ollama.models.details import listed, show
from trio_ollama.models.digest import Digest
from trio_ollama.models.manifest import MODEL, Layer, Manifest
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store

PLAIN = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
TOOLS = PLAIN + "{% if tools %}{{ tools | tojson }}{% endif %}"
CALLS = PLAIN + "{% for tool_call in message.tool_calls %}{{ tool_call.name }}{% endfor %}"
THINKS = PLAIN + "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"
CUTS = PLAIN + "{% set content = content.split('</think>')[-1] %}"
INFILL = "{{ if .Suffix }}<PRE>{{ .Prompt }}<SUF>{{ .Suffix }}<MID>{{ else }}{{ .Prompt }}{{ end }}"
HARMONY = "<|start|>{{ .Role }}<|message|>{{ .Content }}<|end|>{{ if .Tools }}{{ .Tools }}{{ end }}"


@dataclass(frozen=True)
class Kind:
    """A model: its architecture and keys, what stands beside the weights, and what it can do."""

    architecture: str
    expected: str
    keys: dict[str, Any] = field(default_factory=dict)
    """Of the architecture."""
    chat: str = ""
    template: str = ""
    projector: dict[str, Any] | None = None
    config: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "Llama 2": Kind("llama", "completion", {"block_count": 32}, PLAIN),
    "Llama 3.2": Kind("llama", "completion tools", {"block_count": 16}, TOOLS),
    "Qwen 2.5": Kind("qwen2", "completion tools", chat=CALLS),
    "Qwen 2.5 Coder": Kind("qwen2", "completion tools insert", chat=TOOLS, template=INFILL),
    "Qwen 3": Kind("qwen3", "completion tools thinking", chat=TOOLS + THINKS),
    "Qwen 3, a mixture": Kind("qwen3moe", "completion tools thinking", {"expert_count": 128}, TOOLS + THINKS),
    "DeepSeek R1": Kind("qwen2", "completion tools thinking", chat=CALLS + CUTS),
    "DeepSeek V3": Kind("deepseek2", "completion tools", {"expert_count": 256}, TOOLS),
    "Nemotron H": Kind("nemotron_h", "completion tools", chat=TOOLS + CUTS + "<SPECIAL_12>"),
    "Granite, thinking in a field": Kind("granite", "completion tools", chat=TOOLS + CUTS + "reasoning_content"),
    "gpt-oss": Kind("gpt-oss", "completion tools thinking", chat=TOOLS, config={"model_family": "gptoss"}),
    "gpt-oss of the library": Kind(
        "gptoss", "completion tools thinking", template=HARMONY, config={"model_family": "gptoss"}
    ),
    "CodeLlama": Kind("llama", "completion insert", template=INFILL),
    "a base model": Kind("llama", "completion"),
    "Mamba": Kind("mamba", "completion", {"ssm.state_size": 16}),
    "Gemma 3": Kind("gemma3", "completion vision", {"block_count": 34, "vision.block_count": 27}, PLAIN),
    "Gemma 3 1B": Kind("gemma3", "completion", {"block_count": 26}, PLAIN),
    "Gemma 3n": Kind(
        "gemma3n",
        "completion vision",
        chat=PLAIN,
        projector={
            "clip.has_vision_encoder": True,
            "clip.has_audio_encoder": True,
            "clip.vision.projector_type": "gemma3nv",
        },
    ),
    "Llama 3.2 Vision": Kind("mllama", "completion vision", {"vision.block_count": 32}, PLAIN),
    "Llava": Kind("llama", "completion vision", chat=PLAIN, projector={"clip.has_vision_encoder": True}),
    "Qwen 2.5 Omni": Kind(
        "qwen2vl",
        "completion tools vision audio",
        chat=TOOLS,
        projector={"clip.has_vision_encoder": True, "clip.has_audio_encoder": True},
    ),
    "Gemma 4, all in one file": Kind(
        "gemma4", "completion tools vision audio", {"vision.block_count": 16, "audio.block_count": 12}, TOOLS
    ),
    "Nemotron Omni": Kind(
        "nemotron_h_moe",
        "completion vision",
        chat=PLAIN,
        projector={"clip.has_vision_encoder": True, "clip.has_audio_encoder": True},
        config={"model_family": "nemotron_h_omni"},
    ),
    "nomic-embed-text": Kind("nomic-bert", "embedding", {"pooling_type": 1}),
    "bge-m3": Kind("bert", "embedding", {"pooling_type": 2}),
    "Qwen 3 Embedding": Kind("qwen3", "tools embedding", {"pooling_type": 3}, TOOLS),
    "a reranker": Kind("bert", "embedding", {"pooling_type": 4}),
    "pooling that is none": Kind("bert", "embedding", {"pooling_type": 0}),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_of_models(name: str, theirs: OllamaStore, store: Store) -> None:
    kind = KINDS[name]
    values: dict[str, Any] = {"general.architecture": kind.architecture}
    values |= {f"{kind.architecture}.{key}": value for key, value in kind.keys.items()}
    values |= {"tokenizer.chat_template": kind.chat} if kind.chat else {}
    eyes = raw_gguf({"general.architecture": "clip"} | (kind.projector or {}))
    layers = [theirs.layer("projector", eyes)] if kind.projector else []
    layers += [theirs.layer("template", kind.template.encode())] if kind.template else []
    theirs.add("m:x", raw_gguf(values), config={"model_family": kind.architecture} | kind.config, layers=layers)
    expected = kind.expected.split()
    answer = show(store.resolve("m:x"))
    assert answer["capabilities"] == expected
    assert list(listed(store, MetadataCache(), store.list()[0]).capabilities) == expected, "the list says the same"
    assert answer["model_info"]["general.architecture"] == kind.architecture
    for key, value in kind.keys.items():
        assert answer["model_info"][f"{kind.architecture}.{key}"] == value
    assert answer.get("projector_info", {}).get("clip.has_vision_encoder", False) is (kind.projector is not None)


@pytest.mark.parametrize("name", ["Qwen 3", "Gemma 3", "Llava", "nomic-embed-text"])
def test_what_is_created_can_do_the_same(name: str, theirs: OllamaStore, store: Store) -> None:
    kind = KINDS[name]
    values: dict[str, Any] = {"general.architecture": kind.architecture}
    values |= {f"{kind.architecture}.{key}": value for key, value in kind.keys.items()}
    values |= {"tokenizer.chat_template": kind.chat} if kind.chat else {}
    files = {"m.gguf": theirs.blob(raw_gguf(values))}
    if kind.projector:
        files["eyes.gguf"] = theirs.blob(raw_gguf({"general.architecture": "clip"} | kind.projector))
    list(create(store, CreateRequest(model="m", files=files)))
    assert show(store.resolve("m"))["capabilities"] == kind.expected.split()


def test_values_of_every_type_are_shown(theirs: OllamaStore, store: Store) -> None:
    values = {
        "llama.attention.head_count_kv": [8, 8, 0, 8],
        "llama.rope.freq_base": 500_000.0,
        "llama.attention.causal": False,
        "llama.context_length": 131_072,
        "general.tags": ["a", "b"],
        "general.languages": [],
        "tokenizer.ggml.tokens": [str(number) for number in range(1025)],
        "general.name": "hidden",
    }
    theirs.add("m:x", raw_gguf(values))
    info = show(store.resolve("m:x"))["model_info"]
    assert info == {
        "general.architecture": "llama",
        "llama.attention.head_count_kv": (8, 8, 0, 8),
        "llama.rope.freq_base": 500_000.0,
        "llama.attention.causal": False,
        "llama.context_length": 131_072,
        "general.tags": ("a", "b"),
        "general.languages": (),
        "tokenizer.ggml.tokens": None,
        "general.parameter_count": 0,
    }
    assert type(info["llama.attention.causal"]) is bool


@pytest.mark.smollm2
def test_a_real_model(store: Store) -> None:
    path = find_smollm2()
    if path is None:
        pytest.skip(f"{PACKAGE} is not installed")
    digest = Digest("0" * 64)  # nobody hashes weights to show them
    store.blobs.directory.mkdir(parents=True, exist_ok=True)
    store.blobs.path(digest).symlink_to(path)
    layer = Layer(MODEL, str(digest), path.stat().st_size)
    store.write_manifest(ModelName.parse("smollm2"), Manifest(layers=(layer,)))
    answer = show(store.resolve("smollm2"))
    assert answer["capabilities"] == ["completion"]
    assert answer["details"]["quantization_level"] == "Q4_1"
    info = answer["model_info"]
    assert info["general.parameter_count"] == 134_515_008
    assert (info["llama.block_count"], info["llama.embedding_length"], info["llama.context_length"]) == (30, 576, 8192)
    assert (info["llama.attention.head_count"], info["llama.attention.head_count_kv"]) == (9, 3)
    assert info["tokenizer.ggml.tokens"] is None
    assert len(show(store.resolve("smollm2"), verbose=True)["model_info"]["tokenizer.ggml.tokens"]) == 49_152
    assert len(answer["tensors"]) == 272
    assert {"name": "output_norm.weight", "type": "F32", "shape": (576,)} in answer["tensors"]
    assert "<|im_start|>" in answer["template"]
