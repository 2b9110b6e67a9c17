"""What a request wants of the scheduler, made of the model, the options in effect and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quart import has_request_context, request

from trio_ollama.scheduler import Demand, LoadOptions
from trio_ollama.scheduler.core.context import resolve_shift
from trio_ollama.server.errors import ApiError
from trio_ollama.server.lookup import Target
from trio_ollama.server.services import Services

__all__ = ["ABANDONED_LOAD", "context_shift", "demand"]

ABANDONED_LOAD: Final = "X-Abandoned-Load"
"""Request header, `abort` or `finish`: what becomes of a load when this request is the last to leave it."""

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
    return Demand(
        model=facts,
        options=LoadOptions(
            num_ctx=services.default_context if context is None else context,
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
        finish_load=_finish_load(),
    )


def context_shift(target: Target, wanted: bool | None) -> bool:
    """Whether a runner for this request forgets the oldest tokens instead of stopping when the context is full."""
    return resolve_shift(wanted, target.facts)


def _finish_load() -> bool | None:
    wish = request.headers.get(ABANDONED_LOAD, "").strip().lower() if has_request_context() else ""
    if wish not in ("", "abort", "finish"):
        raise ApiError(400, f'{ABANDONED_LOAD} must be "abort" or "finish"')
    return wish == "finish" if wish else None
