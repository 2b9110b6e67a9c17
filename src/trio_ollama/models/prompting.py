"""Who makes a model's prompts, and what becomes of the templates that nobody uses."""

from __future__ import annotations

from functools import lru_cache

from trio_ollama.templates import Facts, GoTemplate, Mode, Native, TemplateError, go_template, prompt_mode

from .autodetect import autodetect
from .metadata import Metadata
from .model import Model

__all__ = ["ignored", "mode_of", "stored_template"]

_parsed = lru_cache(maxsize=64)(go_template)
_decided = lru_cache(maxsize=64)(prompt_mode)


def mode_of(model: Model, metadata: Metadata, setting: bool | None = None) -> Mode:
    """The prompt mode of a model; `setting` is OLLAMA_GO_TEMPLATE."""
    facts = Facts(
        metadata.chat_template,
        model.template,
        model.config.renderer or "",
        model.config.parser or "",
        (model.family, *model.families),
    )
    return _decided(facts, setting)


def stored_template(model: Model, setting: bool | None = None) -> GoTemplate | None:
    """The Go template among a model's layers; None if there is none, it is switched off, or cannot be used."""
    if not model.template or setting is False:
        return None
    try:
        return _parsed(model.template)
    except TemplateError:
        return None


def ignored(model: Model, metadata: Metadata, setting: bool | None = None) -> str:
    """Why a stored Go template does not make the prompts of conversations; empty if it does, or if there is none."""
    mode = mode_of(model, metadata, setting)
    if not model.template or not isinstance(mode, Native):
        return ""
    if (known := autodetect(metadata.chat_template)) is not None and known.template == model.template:
        return ""  # it says the same, and nobody has asked for it
    instead = f"; llama.cpp's own format {mode.builtin} is, which it looks like" if mode.builtin else ""
    if setting is False:
        return f"the stored TEMPLATE is not used: OLLAMA_GO_TEMPLATE is false{instead}"
    if instead:
        return f"the stored TEMPLATE cannot be used{instead}"
    return (
        "the stored TEMPLATE is not used for conversations: the model file has a chat template of its own; "
        "OLLAMA_GO_TEMPLATE=true changes that"
    )
