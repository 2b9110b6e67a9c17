"""How many requests a runner answers at the same time."""

from __future__ import annotations

from typing import Final

from .values import ModelFacts

__all__ = ["SINGLE_SLOT_FAMILIES", "single_slot_family", "slots"]

SINGLE_SLOT_FAMILIES: Final = frozenset(
    (
        *("mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next"),
        *("lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni"),
    )
)
"""Architectures that are not safe with more than one sequence (ollama/ollama#4165)."""


def single_slot_family(model: ModelFacts) -> bool:
    """Worth a warning where the user asked for more; only the exact architecture counts (G27)."""
    return model.architecture in SINGLE_SLOT_FAMILIES


def slots(model: ModelFacts, configured: int) -> int:
    """Slots of a runner for `model`: at least 1, and 1 for embedding models and unsafe families."""
    if not model.completion or model.pooled or single_slot_family(model):
        return 1
    return max(1, configured)
