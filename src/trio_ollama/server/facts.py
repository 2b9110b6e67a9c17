"""What the scheduler must know of a model, taken from its manifest and its files."""

from __future__ import annotations

from collections.abc import Collection

from trio_ollama.models.metadata import Metadata
from trio_ollama.models.model import Model
from trio_ollama.scheduler import ModelFacts

__all__ = ["model_facts"]


def model_facts(model: Model, metadata: Metadata, capabilities: Collection[str]) -> ModelFacts:
    """The facts to plan with. Looks at file sizes, so it belongs into a thread.

    Metadata that is missing or strange gives zeros, which only make the estimate rougher.
    """

    def largest(name: str) -> int:
        return max(metadata.integers(metadata.arch_key(name)), default=0)

    heads = largest("attention.head_count")
    kv_heads = metadata.integers(metadata.arch_key("attention.head_count_kv"))
    return ModelFacts(
        key=str(model.weights_path),
        name=model.name.short,
        path=str(model.weights_path),
        file_size=metadata.file_size,
        architecture=model.family or metadata.architecture,
        families=model.families,
        layers=largest("block_count"),
        kv_heads=max(min(kv_heads, default=heads), 1),
        head_dim=largest("embedding_length") // heads if heads else 0,
        train_context=largest("context_length"),
        completion="completion" in capabilities,
        vision="vision" in capabilities,
        pooled=metadata.arch_key("pooling_type") in metadata.values,
        projectors=tuple(map(str, model.projectors)),
        projector_size=sum(path.stat().st_size for path in model.projectors),
        adapters=tuple(map(str, model.adapters)),
        draft=str(model.draft) if model.draft else None,
    )
