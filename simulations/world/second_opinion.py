"""What the planner should say, worked out a second time for the options that scenarios vary."""

from __future__ import annotations

from trio_ollama.scheduler.core.values import LaunchConfig, LoadOptions

__all__ = ["serves"]


def serves(has: LaunchConfig, wants: LoadOptions) -> bool:
    """Whether a runner may serve a wish (R58, R59)."""
    if wants.num_gpu >= 0 and has.num_gpu != wants.num_gpu:
        return False
    if not wants.num_batch_auto and has.num_batch != wants.num_batch:
        return False
    if has.context_shift != (wants.shift is not False):
        return False
    if wants.num_ctx_auto:
        return has.num_ctx_auto or has.num_ctx >= wants.num_ctx
    return has.num_ctx == (min(wants.num_ctx, has.train_context) if has.train_context else wants.num_ctx)
