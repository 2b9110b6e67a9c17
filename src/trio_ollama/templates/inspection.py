"""What a template uses, and which tags its model writes: read off its nodes, without rendering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .nodes import Action, Branch, Chain, Command, Field, Node, Nodes, Operand, Pipeline, TemplateCall, Text, Variable
from .template import Template

__all__ = ["Tags", "mentions", "names", "opens_thinking", "thinking_tags", "tool_tag", "variables"]


class Tags(NamedTuple):
    """Around what a model thinks, like `<think>` and `</think>`."""

    opening: str
    closing: str


def variables(template: Template) -> frozenset[str]:
    """Every name the template mentions anywhere, of variables and fields, in lower case and without `$`."""
    found: set[str] = set()
    for nodes in (template.root, *template.defined.values()):
        for node in nodes:
            found.update(name.lower() for name in names(node))
    return frozenset(found)


def names(part: Node | Pipeline | Command | Operand | None) -> Iterator[str]:
    """The names of fields, and of variables' fields, that a node or a part of it mentions."""
    match part:
        case Field(names=found) | Variable(names=found):
            yield from found
        case Chain(base=base, names=found):
            yield from names(base)
            yield from found
        case Pipeline(commands=commands):
            for command in commands:
                yield from names(command)
        case Command(operands=operands):
            for operand in operands:
                yield from names(operand)
        case Action(pipeline=pipeline):
            yield from names(pipeline)
        case TemplateCall(pipeline=argument):
            yield from names(argument)
        case Branch():
            yield from names(part.pipeline)
            for node in (*part.body, *part.otherwise):
                yield from names(node)


def mentions(part: Node | Pipeline | None, name: str) -> bool:
    """Whether a node, or something inside of it, mentions this name."""
    return name in names(part)


def thinking_tags(template: Template) -> Tags | None:
    """The texts around `.Thinking` where the template prints it for a message; None if it does not."""
    found = [tags for nodes in _loops_over_messages(template.root) for tags in _around_thinking(nodes)]
    return found[-1] if found else None


def opens_thinking(prompt: str, tags: Tags) -> bool:
    """Whether the prompt ends with the opening tag, so that the answer begins inside."""
    return prompt.rstrip().endswith(tags.opening)


def _loops_over_messages(nodes: Nodes) -> Iterator[Nodes]:
    for node in nodes:
        if isinstance(node, Branch):
            if node.kind == "range" and mentions(node.pipeline, "Messages"):
                yield node.body
            else:
                yield from _loops_over_messages(node.body)
            yield from _loops_over_messages(node.otherwise)


def _around_thinking(nodes: Nodes) -> Iterator[Tags]:
    """First and last text of each list that prints it; a condition that asks for it says nothing of tags."""
    for node in nodes:
        match node:
            case Action(pipeline=pipeline) if mentions(pipeline, "Thinking"):
                yield from _ends(nodes)
            case Branch(kind="with", pipeline=pipeline, body=body) if mentions(pipeline, "Thinking"):
                yield from _ends(body)
        if isinstance(node, Branch):
            yield from _around_thinking(node.body)
            yield from _around_thinking(node.otherwise)


def _ends(nodes: Nodes) -> Iterator[Tags]:
    match nodes:
        case (Text(text=first), *_, Text(text=last)) if first.strip() and last.strip():
            yield Tags(first.strip(), last.strip())


def tool_tag(template: Template) -> str:
    """What the model writes before its calls: the first text under `if .ToolCalls`, up to the JSON; else `{`."""
    body = next(_bodies_for_calls(template.root), ())
    text = _first_text(body) or ""
    tag = text.replace("\r\n", "\n").partition("{")[0].strip()
    # The bracket of a list of calls is JSON already; models write it with and without a blank before it.
    return (tag.removesuffix("[").rstrip() or tag) or "{"


def _bodies_for_calls(nodes: Sequence[Node]) -> Iterator[Nodes]:
    for node in nodes:
        if isinstance(node, Branch):
            if node.kind == "if" and mentions(node.pipeline, "ToolCalls"):
                yield node.body
            yield from _bodies_for_calls(node.body)
            yield from _bodies_for_calls(node.otherwise)


def _first_text(nodes: Nodes) -> str | None:
    """The first text before anything is printed."""
    for node in nodes:
        match node:
            case Text(text=text):
                return text
            case Branch(body=body, otherwise=otherwise):
                found = _first_text(body)
                return _first_text(otherwise) if found is None else found
            case Action(pipeline=pipeline) if pipeline.variables:
                continue
            case _:
                return None
    return None
