"""How many tokens a slot holds: floors, limits, defaults, and what happens to the context when it is full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .values import ModelFacts

__all__ = ["clamp", "default_context", "floor_context", "resolve_shift", "step_down", "supports_shift"]

_GIB: Final = 1 << 30

_LEAST: Final = 4
_LEAST_FOR_IMAGES: Final = 2048

_SMALL, _MEDIUM, _LARGE = 4096, 32768, 262144
"""The automatic contexts."""


def floor_context(num_ctx: int, vision: bool) -> int:
    """The smallest context that works: 4 tokens, 2048 where one image may take most of them (G33)."""
    return max(num_ctx, _LEAST_FOR_IMAGES if vision else _LEAST)


def clamp(num_ctx: int, train: int) -> int:
    """No more than the model was trained for; `train` 0 is unknown and limits nothing."""
    return min(num_ctx, train) if train > 0 else num_ctx


def default_context(total_vram: int) -> int:
    """The context where nobody asked for one, by the VRAM of the machine: 24 GB cards reach the middle tier."""
    if total_vram >= 47 * _GIB:
        return _LARGE
    return _MEDIUM if total_vram >= 23 * _GIB else _SMALL


def step_down(num_ctx: int, train: int) -> int | None:
    """The next smaller automatic context after a load ran out of memory; None if there is none (R49, G14).

    Only for automatic contexts, and only once per load: the caller knows both.
    """
    effective = clamp(num_ctx, train)
    return next((tier for tier in (_MEDIUM, _SMALL) if tier < effective), None)


def supports_shift(architecture: str, families: Iterable[str]) -> bool:
    """Whether the oldest tokens may be dropped from a full context; deepseek2's cache cannot be shifted."""
    return architecture != "deepseek2" and "deepseek2" not in families


def resolve_shift(requested: bool | None, model: ModelFacts) -> bool:
    """The request's wish, else what the model can do (R58)."""
    return supports_shift(model.architecture, model.families) if requested is None else requested
