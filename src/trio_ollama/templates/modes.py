"""Who applies which template: one decision per model, from facts alone."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from .errors import TemplateError
from .inspection import Tags, mentions, thinking_tags, tool_tag, variables
from .known import builtin_template
from .nodes import Branch, Constant, Nodes, Operand, Pipeline
from .template import Template

__all__ = ["Facts", "GoTemplate", "Mode", "Native", "Refused", "go_template", "jinja_abilities", "prompt_mode"]

_SPLITS_AT_THINK: Final = re.compile(r"""split\(\s*["']</think>["']""")
_TOOL_ROLE: Final = re.compile(r"""["'](?:tool|tool_response|tool_responses|ipython|observation)["']""")
_HARMONY: Final = ("<|start|>", "<|end|>")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decision hangs on."""

    chat_template: str = ""
    """Jinja, from the weights."""
    go_template: str = ""
    """From the model's layers."""
    renderer: str = ""
    parser: str = ""
    """What the config names of upstream's built-in ones."""
    families: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Native:
    """The runner applies the template of the weights, or the one of its own with this name (which knows no tools)."""

    builtin: str | None = None


@dataclass(frozen=True, slots=True)
class GoTemplate:
    """This server renders the prompt, and takes thinking and tool calls out of the answer."""

    template: Template
    tags: Tags | None = None
    """Around thinking; None for a model that does not think."""
    tool_tag: str = "{"
    capabilities: frozenset[str] = field(default=frozenset())
    """Of tools, insert, thinking."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No chat is possible; the reason goes behind `model "x" `."""

    reason: str


Mode: TypeAlias = Native | GoTemplate | Refused


def prompt_mode(facts: Facts, setting: bool | None = None, *, native_first: bool = True) -> Mode:
    """The mode of a model; `setting` is OLLAMA_GO_TEMPLATE.

    true: the stored Go template whenever there is one; false: never. Unset: weights with a chat template are native
    - or, without `native_first`, as upstream has it: only if the chat template can do more than the Go template.
    """
    try:
        stored = go_template(facts.go_template) if facts.go_template and setting is not False else None
    except TemplateError as error:
        return _unparsed(facts, setting, error)
    if stored is not None and setting is True:
        return stored
    if facts.renderer or facts.parser or _is_harmony(facts):
        return _without_renderer(facts)
    if facts.chat_template and (stored is None or native_first or _prefers_jinja(facts.chat_template, stored)):
        return Native()
    if stored is not None:
        return stored
    switched_off = " but the stored Go template, and OLLAMA_GO_TEMPLATE is false"
    there = switched_off if facts.go_template else ", and none is stored with it"
    return _builtin(facts, f"has no chat template{there}")


def go_template(text: str) -> GoTemplate:
    """A Go template with what can be read off it. Raises TemplateError."""
    template = Template.parse(text)
    names, tags = variables(template), thinking_tags(template)
    found = {
        "tools": "tools" in names,
        "insert": "suffix" in names,
        "thinking": tags is not None,
    }
    return GoTemplate(template, tags, tool_tag(template), frozenset(name for name, has in found.items() if has))


def jinja_abilities(chat_template: str) -> frozenset[str]:
    """Of tools and thinking, what a chat template in Jinja can render."""
    found = set()
    if "tools" in chat_template or "tool_call" in chat_template:
        found.add("tools")
    both_tags = "<think>" in chat_template and "</think>" in chat_template
    # Such a template cuts the thinking out of earlier answers itself, and so expects answers to hold it.
    cuts = _SPLITS_AT_THINK.search(chat_template) and "reasoning_content" not in chat_template
    if both_tags or (cuts and "<SPECIAL_12>" not in chat_template):
        found.add("thinking")
    return frozenset(found)


def _prefers_jinja(chat_template: str, stored: GoTemplate) -> bool:
    jinja, go = jinja_abilities(chat_template), stored.capabilities
    jinja_returns, go_returns = _jinja_round_trip(chat_template), _go_round_trip(stored.template)
    if jinja > go:
        return jinja_returns or not go_returns
    return jinja == go and "tools" in go and jinja_returns and not go_returns


def _jinja_round_trip(chat_template: str) -> bool:
    """It renders a model's calls, and the tools' results."""
    return "tool_calls" in chat_template and _TOOL_ROLE.search(chat_template) is not None


def _go_round_trip(template: Template) -> bool:
    names = variables(template)
    results = bool(names & {"toolname", "toolcallid"}) or _asks_for_tool_role(template.root)
    return "toolcalls" in names and results


def _asks_for_tool_role(nodes: Nodes) -> bool:
    return any(
        (mentions(node.pipeline, "Role") and _has_constant(node.pipeline, "tool"))
        or _asks_for_tool_role((*node.body, *node.otherwise))
        for node in nodes
        if isinstance(node, Branch)
    )


def _has_constant(part: Pipeline, value: str) -> bool:
    operands: list[Operand] = [operand for command in part.commands for operand in command.operands]
    return any(
        operand.value == value if isinstance(operand, Constant) else _has_constant(operand, value)
        for operand in operands
        if isinstance(operand, Constant | Pipeline)
    )


def _is_harmony(facts: Facts) -> bool:
    tokens = all(token in facts.go_template for token in _HARMONY)
    return bool({"gptoss", "gpt-oss"}.intersection(facts.families)) and tokens


def _without_renderer(facts: Facts) -> Mode:
    """The weights' own template replaces what upstream has built in; nothing else does."""
    if facts.chat_template:
        return Native()
    named = [f'{kind} "{name}"' for kind, name in (("renderer", facts.renderer), ("parser", facts.parser)) if name] or [
        'parser "harmony"'
    ]
    return Refused(f"needs the built-in {' and '.join(named)}, which this server does not have, or a chat template")


def _unparsed(facts: Facts, setting: bool | None, error: TemplateError) -> Mode:
    reason = f"has a Go template that cannot be used: {error}"
    if setting is True:
        return Refused(reason)
    if facts.renderer or facts.parser or _is_harmony(facts):
        return _without_renderer(facts)
    return Native() if facts.chat_template else _builtin(facts, reason)


def _builtin(facts: Facts, otherwise: str) -> Mode:
    name = builtin_template(facts.go_template)
    return Native(name) if name else Refused(otherwise)
