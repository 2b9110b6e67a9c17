"""The numbers in a header that a model's need for memory is computed from."""

from __future__ import annotations

from dataclasses import dataclass

from .metadata import Metadata

__all__ = ["SizeFacts", "size_facts"]


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """Sizes of a model, named as the scheduler names them; counts, no bytes but `file_size`."""

    architecture: str
    file_size: int
    layers: int
    """`<arch>.block_count`."""
    kv_heads: int
    """The smallest `<arch>.attention.head_count_kv`; 1 if missing or 0."""
    head_dim: int
    """`embedding_length // max(head_count)`; 0 if there are no heads."""
    train_context: int
    """`<arch>.context_length` in tokens; 0 if the file does not say."""
    embedding_length: int
    pooled: bool
    """The file says how to pool: an embedding model."""
    vision: bool
    """There is an image encoder in this file."""


def size_facts(metadata: Metadata) -> SizeFacts:
    """Read them, with upstream's defaults for what is missing."""

    def number(name: str) -> int:
        return max(metadata.integer(metadata.arch_key(name)), 0)

    heads = max(metadata.integers(metadata.arch_key("attention.head_count")), default=1)
    kv_heads = min(metadata.integers(metadata.arch_key("attention.head_count_kv")), default=1)
    return SizeFacts(
        architecture=metadata.architecture,
        file_size=metadata.file_size,
        layers=number("block_count"),
        kv_heads=max(kv_heads, 1),
        head_dim=number("embedding_length") // heads if heads > 0 else 0,
        train_context=number("context_length"),
        embedding_length=number("embedding_length"),
        pooled=metadata.arch_key("pooling_type") in metadata.values,
        vision=number("vision.block_count") > 0 or metadata.inline_vision,
    )
