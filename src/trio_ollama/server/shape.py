"""From a GGUF header to the numbers that the better estimate of memory is made of.

Keys and their defaults are those of llama.cpp; what is missing or strange makes the estimate rougher, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from trio_ollama.models.metadata import Metadata
from trio_ollama.scheduler import Shape

__all__ = ["projector_size", "shape"]

_PERIODS: Final[Mapping[str, tuple[int, bool]]] = MappingProxyType(
    {
        "afmoe": (4, False),
        "cohere2": (4, False),
        "exaone-moe": (4, False),
        "exaone4": (4, False),
        "gemma-embedding": (6, False),
        "gemma2": (2, False),
        "gemma3": (6, False),
        "gemma3n": (5, False),
        "gpt-oss": (2, False),
        "laguna": (4, True),
        "llama4": (4, False),
        "modern-bert": (3, True),
        "olmo2": (4, False),
        "plamo3": (8, False),
        "smallthinker": (4, True),
    }
)
"""Architectures in which one layer of so many sees the whole context, and whether it is the first of them (llama.cpp
has this in its code; a file may have another period, or say it for each layer). All others have no window, whatever
their file says of one."""

_WINDOWS: Final[Mapping[str, int]] = MappingProxyType({"gemma2": 4096, "llama4": 8192})
"""Windows that a file need not name."""

_MOST_LAYERS: Final = 1024
"""Twice what llama.cpp takes; a hostile header may claim billions."""


def shape(metadata: Metadata) -> Shape:
    """What one file, seen as a language model, needs memory for."""
    arch = metadata.architecture

    def number(name: str, default: int = 0) -> int:
        return max(metadata.integer(metadata.arch_key(name), default), 0)

    def largest(name: str) -> int:
        return max(max(metadata.integers(metadata.arch_key(name)), default=0), 0)

    layers = min(number("block_count"), _MOST_LAYERS)
    embedding = number("embedding_length")
    heads = _each(metadata, "attention.head_count", layers, 0)
    kv_heads = _each(metadata, "attention.head_count_kv", layers, heads)
    recurrent = _recurrent(metadata, layers, kv_heads)
    if arch != "falcon-h1":  # whose layers are both
        kv_heads = [0 if state else count for count, state in zip(kv_heads, recurrent, strict=True)]
    most_heads = max(heads, default=0)
    length = embedding // min((count for count in heads if count), default=1) if most_heads else 0
    keys, values = number("attention.key_length", length), number("attention.value_length", length)
    if number("attention.key_length_mla"):  # latent attention keeps no values
        values = 0
    full = windowed = 0
    encoder = "bert" in arch or arch in {"t5encoder", "gemma-embedding"}
    if not encoder:
        window_values = number("attention.value_length_swa", values)
        window_row = number("attention.key_length_swa", keys) + window_values
        slides = _sliding(metadata, layers)
        for layer in range(_caching(metadata, layers)):
            if slides[layer]:
                windowed += kv_heads[layer] * window_row
            else:
                full += kv_heads[layer] * (keys + values)
    inner = number("ssm.inner_size") if any(recurrent) else 0
    return Shape(
        weights=max(metadata.file_size - metadata.header_size, 0),
        embedding=embedding,
        feed_forward=max(largest("feed_forward_length"), _experts(metadata)),
        heads=most_heads,
        queries=most_heads * keys,
        keys=max(kv_heads, default=0) * keys,
        cached=full,
        vocabulary=metadata.length("tokenizer.ggml.tokens") or number("vocab_size"),
        merges=metadata.length("tokenizer.ggml.merges"),
        window=number("attention.sliding_window", _WINDOWS.get(arch, 0)),
        window_cached=windowed,
        state=sum(recurrent),
        inner=inner,
        token_embeddings=metadata.token_embeddings,
        tied=not metadata.has_output,
        head=not encoder,
        attends=most_heads > 0,
    )


def projector_size(metadata: Metadata) -> int:
    """Bytes of an image encoder with what one image takes: it looks at all patches at once, without flash attention.

    In words for each patch: the scores of all heads beside 6 embeddings, or 5 embeddings and 3 hidden layers. That is
    how language models were measured; image encoders were not.
    """

    def number(name: str) -> int:
        return max(metadata.integer(f"clip.vision.{name}"), 0)

    patch = number("patch_size")
    patches = min((number("image_size") // patch) ** 2, 1 << 16) if patch else 0
    embedding = number("embedding_length")
    words = max(
        number("attention.head_count") * patches + 6 * embedding,
        5 * embedding + 3 * number("feed_forward_length"),
    )
    return metadata.file_size + 4 * patches * words


def _each(metadata: Metadata, name: str, layers: int, default: int | list[int]) -> list[int]:
    """A number for each layer, from one for all or an array; layers that an array leaves out take its last one."""
    found = metadata.integers(metadata.arch_key(name))
    if not found:
        return list(default) if isinstance(default, list) else [default] * layers
    return [max(found[min(layer, len(found) - 1)], 0) for layer in range(layers)]


def _sliding(metadata: Metadata, layers: int) -> list[bool]:
    """Which layers look back no further than the window."""
    arch = metadata.architecture
    if not metadata.integer(metadata.arch_key("attention.sliding_window"), _WINDOWS.get(arch, 0)):
        return [False] * layers
    pattern = metadata.values.get(metadata.arch_key("attention.sliding_window_pattern"))
    if isinstance(pattern, tuple):
        return [bool(pattern[layer]) if layer < len(pattern) else False for layer in range(layers)]
    if arch not in _PERIODS:
        return [False] * layers
    period, first = _PERIODS[arch]
    if isinstance(pattern, int) and pattern > 0:
        period = pattern
    return [layer % period != (0 if first else period - 1) for layer in range(layers)]


def _caching(metadata: Metadata, layers: int) -> int:
    """Layers from the first on that have a cache of their own; later ones share it."""
    if metadata.architecture == "gemma3n":
        return min(20, layers)
    return max(layers - metadata.integer(metadata.arch_key("attention.shared_kv_layers")), 0)


def _experts(metadata: Metadata) -> int:
    """Width of the hidden layers of all experts that one token uses."""

    def number(name: str) -> int:
        return max(metadata.integer(metadata.arch_key(name)), 0)

    each = number("expert_feed_forward_length") or max(
        metadata.integers(metadata.arch_key("feed_forward_length")), default=0
    )
    return number("expert_used_count") * each + number("expert_shared_feed_forward_length")


def _recurrent(metadata: Metadata, layers: int, kv_heads: list[int]) -> list[int]:
    """Bytes of the state that one sequence has in each layer; 0 for layers with attention only (f32, llama.cpp)."""

    def number(name: str) -> int:
        return max(metadata.integer(metadata.arch_key(name)), 0)

    embedding, inner = number("embedding_length"), number("ssm.inner_size")
    if inner:
        convolved = inner + 2 * number("ssm.group_count") * number("ssm.state_size")
        size = 4 * (max(number("ssm.conv_kernel") - 1, 0) * convolved + number("ssm.state_size") * inner)
    elif number("wkv.head_size"):
        return [4 * embedding * (2 + number("wkv.head_size"))] * layers
    elif number("shortconv.l_cache"):
        size = 4 * embedding * (number("shortconv.l_cache") - 1)
    else:
        return [0] * layers
    if metadata.architecture == "falcon-h1":
        return [size] * layers
    if interval := number("full_attention_interval"):
        return [size if (layer + 1) % interval else 0 for layer in range(layers)]
    return [0 if count else size for count in kv_heads]
