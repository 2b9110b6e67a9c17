"""What the scheduler must know of a model, taken from its manifest and its files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from trio_ollama.models.errors import InvalidGgufError
from trio_ollama.models.gguf import read_metadata
from trio_ollama.models.metadata import Metadata
from trio_ollama.models.model import Model
from trio_ollama.scheduler import ModelFacts, Shape
from trio_ollama.server.shape import projector_size, shape

__all__ = ["model_facts"]

_INLINE_VISION: Final = frozenset(
    {
        "gemma3",
        "gemma4",
        "qwen35",
        "qwen35moe",
        "qwen25vl",
        "qwen3vl",
        "qwen3vlmoe",
        "mistral3",
        "deepseekocr",
        "glmocr",
        "llama4",
        "nemotron_h_omni",
    }
)
"""Architectures whose weights may bring their image encoder."""
_MANY_TOKENS: Final = frozenset(("qwen2vl", "qwen25vl", "qwen3vl", "qwen3vlmoe"))
"""These read poorly what takes fewer than `_IMAGE_TOKENS`."""
_IMAGE_TOKENS: Final = 1024


def model_facts(
    model: Model, metadata: Metadata, capabilities: Collection[str], *, chat_template: str = ""
) -> ModelFacts:
    """The facts to plan with; `chat_template` names the runner's own, if that makes the prompts.

    Looks at files, and reads the headers of a draft and of projectors: it belongs into a thread.

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
        projectors=_projectors(model, metadata),
        projector_size=sum(path.stat().st_size for path in model.projectors),
        adapters=tuple(map(str, model.adapters)),
        draft=str(model.draft) if model.draft else None,
        draft_kind=_draft_kind(model, metadata),
        image_min_tokens=_IMAGE_TOKENS if metadata.architecture in _MANY_TOKENS else 0,
        chat_template=chat_template,
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


def _projectors(model: Model, metadata: Metadata) -> tuple[str, ...]:
    """The image encoders, of which the runner takes the first; one inside the weights is no file of its own."""
    if not model.projectors and metadata.inline_vision and metadata.architecture in _INLINE_VISION:
        return (str(model.weights_path),)
    return tuple(map(str, model.projectors))


def _draft_kind(model: Model, metadata: Metadata) -> str:
    """How tokens are drafted: by a model beside this one, or by heads of its own.

    **DIFF**: upstream takes every model beside this one for such heads; a small model of the usual kind is none.
    """
    if model.draft is None:
        return "mtp" if _has_heads(metadata) else ""
    try:
        draft = read_metadata(model.draft)
    except InvalidGgufError:  # the load will say so
        return "simple"
    if draft.architecture == "dflash":
        return "dflash"
    return "mtp" if _has_heads(draft) else "simple"


def _has_heads(metadata: Metadata) -> bool:
    if metadata.integer(metadata.arch_key("nextn_predict_layers")) > 0:
        return True
    return metadata.inline_draft and metadata.architecture in ("qwen35", "qwen35moe")


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
