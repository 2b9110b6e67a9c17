"""What the scheduler must know of a model, taken from its manifest and its files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from trio_ollama.models.errors import InvalidGgufError
from trio_ollama.models.gguf import read_metadata
from trio_ollama.models.metadata import Metadata
from trio_ollama.models.model import Model
from trio_ollama.scheduler import ModelFacts, Shape
from trio_ollama.server.shape import projector_size, shape

__all__ = ["model_facts"]


def model_facts(model: Model, metadata: Metadata, capabilities: Collection[str]) -> ModelFacts:
    """The facts to plan with. Looks at files, and reads the headers of a draft and of projectors: it belongs into a
    thread.

    Counts and defaults are those of upstream's formula: whatever is missing or strange makes it rougher, as there.
    """

    def number(name: str) -> int:
        return max(metadata.integer(metadata.arch_key(name)), 0)

    heads = max(metadata.integers(metadata.arch_key("attention.head_count")), default=1)
    kv_heads = min(metadata.integers(metadata.arch_key("attention.head_count_kv")), default=1)
    return ModelFacts(
        key=str(model.weights_path),
        name=model.name.short,
        path=str(model.weights_path),
        file_size=metadata.file_size,
        architecture=model.family or metadata.architecture,
        families=model.families,
        layers=number("block_count"),
        kv_heads=max(kv_heads, 1),
        head_dim=number("embedding_length") // heads if heads > 0 else 0,
        train_context=number("context_length"),
        completion="completion" in capabilities,
        vision="vision" in capabilities,
        pooled=metadata.arch_key("pooling_type") in metadata.values,
        projectors=tuple(map(str, model.projectors)),
        projector_size=sum(path.stat().st_size for path in model.projectors),
        adapters=tuple(map(str, model.adapters)),
        draft=str(model.draft) if model.draft else None,
        shape=_whole_shape(model, metadata),
    )


def _whole_shape(model: Model, metadata: Metadata) -> Shape:
    """The model with what is loaded beside it; of the projectors only the first is ever used."""
    return replace(
        shape(metadata),
        projector=sum(map(_projector, model.projectors[:1])),
        adapters=sum(path.stat().st_size for path in model.adapters),
        draft=_draft(model.draft) if model.draft else None,
    )


def _projector(path: Path) -> int:
    try:
        return projector_size(read_metadata(path))
    except InvalidGgufError:  # the load will say so
        return path.stat().st_size


def _draft(path: Path) -> Shape | None:
    try:
        return shape(read_metadata(path))
    except InvalidGgufError:
        return None
