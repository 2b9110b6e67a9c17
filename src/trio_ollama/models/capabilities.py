"""What a model can do, from its config, its header and its template.

Until there is a Go-template engine, a Go template is only searched for the variables it would use; and it is looked at
only when the weights bring no chat template of their own, because that one is what chats are rendered with.
"""

from __future__ import annotations

import re
from typing import Final

from .metadata import Metadata
from .model import Model

__all__ = ["CAPABILITIES", "capabilities", "uses_jinja"]

CAPABILITIES: Final = ("completion", "tools", "insert", "vision", "embedding", "thinking", "image", "audio")
"""All there are, in the order in which they are told."""

_TOOLS: Final = re.compile(r"\.Tools\b")
_SUFFIX: Final = re.compile(r"\.Suffix\b")
_THINKING: Final = re.compile(r"\.Thinking\b")
_SPLITS_AT_THINK: Final = re.compile(r"""split\(\s*["']</think>["']""")


def uses_jinja(model: Model, metadata: Metadata) -> bool:
    """Whether the runner can render this model's chats: the weights bring a template, and the config asks for no
    renderer or parser that only upstream has built in."""
    return bool(metadata.chat_template) and not (model.config.renderer or model.config.parser)


def capabilities(model: Model, metadata: Metadata | None, projector: Metadata | None = None) -> tuple[str, ...]:
    """What this model can do, in the order of CAPABILITIES; names only its config knows come last.

    `metadata` is None for a model without readable weights, `projector` the header of its first projector, if read.
    """
    found = set(model.config.capabilities or ())
    if {"gptoss", "gpt-oss"} & {model.family, *model.families}:
        found.add("thinking")
    if metadata is not None:
        found |= _from_weights(metadata)
        if uses_jinja(model, metadata):
            found |= _from_jinja(metadata.chat_template)
        else:
            found |= _from_go_template(model.template)
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


def _from_jinja(template: str) -> set[str]:
    found = set()
    if "tools" in template or "tool_call" in template:
        found.add("tools")
    both_tags = "<think>" in template and "</think>" in template
    # Such a template cuts the thinking out of earlier answers itself, and so expects answers to hold it.
    cuts = _SPLITS_AT_THINK.search(template) and "reasoning_content" not in template
    if both_tags or (cuts and "<SPECIAL_12>" not in template):
        found.add("thinking")
    return found


def _from_go_template(template: str) -> set[str]:
    searches = {"tools": _TOOLS, "insert": _SUFFIX, "thinking": _THINKING}
    return {name for name, pattern in searches.items() if pattern.search(template)}


def _hears(projector: Metadata) -> bool:
    audio = projector.values.get("clip.has_audio_encoder") is True
    return audio and projector.text("clip.vision.projector_type") != "gemma3nv"
