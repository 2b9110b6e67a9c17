"""What a model can do, from its config, its header and the template that makes its prompts."""

from __future__ import annotations

from typing import Final

from trio_ollama.templates import Mode, Native
from trio_ollama.templates.modes import jinja_abilities

from .metadata import Metadata
from .model import Model
from .prompting import mode_of, stored_template

__all__ = ["CAPABILITIES", "capabilities"]

CAPABILITIES: Final = ("completion", "tools", "insert", "vision", "embedding", "thinking", "image", "audio")
"""All there are, in the order in which they are told."""


def capabilities(
    model: Model, metadata: Metadata | None, projector: Metadata | None = None, *, setting: bool | None = None
) -> tuple[str, ...]:
    """What this model can do, in the order of CAPABILITIES; names only its config knows come last.

    `metadata` is None for a model without readable weights, `projector` the header of its first projector, if read;
    `setting` is OLLAMA_GO_TEMPLATE.
    """
    found = set(model.config.capabilities or ())
    if {"gptoss", "gpt-oss"} & {model.family, *model.families}:
        found.add("thinking")
    if metadata is not None:
        found |= _from_weights(metadata)
        mode = mode_of(model, metadata, setting)
        found |= _from_template(model, metadata, setting, mode)
        if isinstance(mode, Native) and mode.builtin is not None:
            found -= {"tools"}  # whatever the config says: llama.cpp's own formats have none
    if model.projectors:
        found.add("vision")
        if projector is not None and _hears(projector):
            found.add("audio")
    if "nemotron_h_omni" in {model.family, *model.families}:
        found.discard("audio")
    known = tuple(name for name in CAPABILITIES if name in found)
    return (*known, *sorted(found.difference(CAPABILITIES)))


def _from_weights(metadata: Metadata) -> set[str]:
    found = {"embedding" if metadata.arch_key("pooling_type") in metadata.values else "completion"}
    if metadata.integer(metadata.arch_key("vision.block_count")):
        found.add("vision")
    if metadata.integer(metadata.arch_key("audio.block_count")):
        found.add("audio")
    return found


def _from_template(model: Model, metadata: Metadata, setting: bool | None, mode: Mode) -> frozenset[str]:
    stored = stored_template(model, setting)
    able = stored.capabilities if stored is not None else frozenset[str]()
    if not isinstance(mode, Native):
        return able
    # **DIFF**: chat templates know no text that goes on behind the answer, so that is left to the stored one.
    return jinja_abilities(metadata.chat_template) | (able & {"insert"})


def _hears(projector: Metadata) -> bool:
    audio = projector.values.get("clip.has_audio_encoder") is True
    return audio and projector.text("clip.vision.projector_type") != "gemma3nv"
