"""Whether a loaded runner serves a demand, or must be replaced (R58, R59)."""

from __future__ import annotations

from .batch import embedding_batch
from .context import clamp
from .values import LaunchConfig

__all__ = ["difference"]


def difference(existing: LaunchConfig, wanted: LaunchConfig) -> str | None:
    """Name of the first field for which `existing` cannot serve `wanted`; None if it can.

    Effective values are compared, not how they were written (G23). The number of slots is fixed for the life of the
    daemon and never compared (R57).
    """
    if wanted.embeddings and not existing.embeddings:
        return "embeddings"  # the other way round a runner serves both
    # Fixed at launch, and upstream compares all but the draft (**DIFF**, G22).
    if existing.context_shift != wanted.context_shift:
        return "context_shift"
    if existing.adapters != wanted.adapters:
        return "adapters"
    if existing.projectors != wanted.projectors:
        return "projectors"
    if existing.draft != wanted.draft:
        return "draft"
    if wanted.chat_template and existing.chat_template != wanted.chat_template:
        # Another name for the same weights may bring its own template (G22); who needs none takes any.
        return "chat_template"
    if not _same_context(existing, wanted):
        return "num_ctx"
    if not _same_batch(existing, wanted):
        return "num_batch"
    if wanted.num_gpu >= 0 and existing.num_gpu != wanted.num_gpu:  # a negative number means "don't care"
        return "num_gpu"
    if not _same_mapping(existing, wanted):
        return "use_mmap"
    if existing.main_gpu != wanted.main_gpu:
        return "main_gpu"
    if existing.num_thread != wanted.num_thread:
        return "num_thread"
    if existing.draft_num_predict != wanted.draft_num_predict:
        return "draft_num_predict"
    return None


def _same_context(existing: LaunchConfig, wanted: LaunchConfig) -> bool:
    train = existing.train_context or wanted.train_context
    has, wants = clamp(existing.num_ctx, train), clamp(wanted.num_ctx, train)  # G02
    if wanted.num_ctx_auto:
        # Both automatic: also smaller, after a load that ran out of memory (R49). A larger one that somebody asked
        # for serves, too (**DIFF**, R59: otherwise two clients reload the model in turn).
        return existing.num_ctx_auto or has >= wants
    return has == wants


def _same_batch(existing: LaunchConfig, wanted: LaunchConfig) -> bool:
    if not wanted.num_batch_auto:
        return existing.num_batch == wanted.num_batch
    # **DIFF** (G03): a demand without a batch of its own takes any; upstream reloads if the other was explicit.
    # Except that an input to embed must fit into one batch (G32).
    if not wanted.embeddings or existing.num_batch_auto:
        return True
    return existing.num_batch >= embedding_batch(clamp(wanted.num_ctx, wanted.train_context))


def _same_mapping(existing: LaunchConfig, wanted: LaunchConfig) -> bool:
    if wanted.use_mmap is None and existing.use_mmap_auto:
        return True
    return (existing.use_mmap is not False) == (wanted.use_mmap is not False)  # not chosen means mapped
