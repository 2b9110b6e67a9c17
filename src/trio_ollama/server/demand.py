"""What a request wants of the scheduler, made of the model, the options in effect and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trio_ollama.scheduler import Demand, LoadOptions
from trio_ollama.server.lookup import Target
from trio_ollama.server.services import Services

__all__ = ["context_shift", "demand"]

_LEAST_CONTEXT: Final = 4
_LEAST_VISION_CONTEXT: Final = 2048
_DEFAULT_BATCH: Final = 512
_DEFAULT_DRAFT: Final = 4


def demand(
    services: Services,
    target: Target,
    options: Mapping[str, Any],
    *,
    keep_alive: int | None,
    shift: bool | None = None,
    embeddings: bool = False,
    slot: bool = True,
) -> Demand:
    """The demand for a request with merged `options`; `keep_alive` in nanoseconds, None for "as it is"."""
    facts = target.facts
    context = options.get("num_ctx")
    if context is None and services.settings.context_length > 0:
        context = services.settings.context_length
    least = _LEAST_VISION_CONTEXT if facts.vision else _LEAST_CONTEXT
    return Demand(
        model=facts,
        options=LoadOptions(
            num_ctx=max(services.default_context if context is None else context, least),
            num_ctx_auto=context is None,
            num_batch=max(options.get("num_batch", _DEFAULT_BATCH), 1),
            num_batch_auto="num_batch" not in options,
            num_gpu=options.get("num_gpu", -1),
            main_gpu=options.get("main_gpu"),
            use_mmap=options.get("use_mmap"),
            num_thread=max(options.get("num_thread", 0), 0),
            draft_num_predict=options.get("draft_num_predict", _DEFAULT_DRAFT if facts.draft else 0),
            shift=shift,
            embeddings=embeddings,
        ),
        keep_alive=keep_alive,
        slot=slot,
    )


def context_shift(target: Target, wanted: bool | None) -> bool:
    """Whether a runner for this request forgets the oldest tokens instead of stopping when the context is full."""
    if wanted is not None:
        return wanted
    return "deepseek2" not in (target.model.family, *target.model.families)
