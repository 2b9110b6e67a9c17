"""Ollama's rules around a Go template: which values it gets, and how often it is executed for one prompt."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from .chat import Message, message_values, tool_values
from .inspection import mentions, variables
from .nodes import Action, Branch, Command, Field, Node, Nodes, Pipeline, TemplateCall
from .template import Template
from .values import Value

__all__ = ["DEFAULT_TEMPLATE", "Prompt", "Think", "render_prompt", "without_bos"]

Think: TypeAlias = bool | str | None
"""None if the request does not say; a string is a level, like `high`."""

DEFAULT_TEMPLATE: Final = "{{ .Prompt }}"
"""For a model that has none."""

_RESPONSE: Final = Action(Pipeline((Command((Field(("Response",)),)),), 1))
_IMAGE: Final = "[img]"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A finished prompt. Its text has the marker `[img-N]` where image N of `images` belongs."""

    text: str
    images: tuple[bytes, ...] = ()


def render_prompt(
    template: Template,
    messages: Sequence[Message] = (),
    *,
    system: str = "",
    tools: Sequence[Mapping[str, Any]] = (),
    prompt: str = "",
    suffix: str = "",
    think: Think = None,
    today: datetime.date | None = None,
) -> Prompt:
    """The prompt for a conversation, or for text to be inserted between `prompt` and `suffix`.

    `system` comes first and `prompt`, if there is no suffix, is the user's last turn. `tools` are a request's, as JSON.
    Raises TemplateError.
    """
    rendering = _Rendering(template, think, today)
    if prompt and suffix:
        return Prompt(rendering.once(Prompt=prompt, Suffix=suffix, Response=""))
    turns = [Message("system", system)] if system else []
    turns += messages
    turns += [Message("user", prompt)] if prompt else []
    images, turns = _numbered(turns)
    joined = _joined(turns)
    if "messages" in variables(template):
        together = "\n\n".join(turn.content for turn in turns if turn.role == "system")
        text = rendering.once(System=together, Messages=message_values(joined), Tools=tool_values(tools), Response="")
        return Prompt(text, images)
    return Prompt(rendering.turn_by_turn(joined), images)


def without_bos(prompt: str, bos: str) -> str:
    """For a tokenizer that puts its beginning-of-sequence token in front itself: the prompt without its own."""
    return prompt.removeprefix(bos) if bos else prompt


def _numbered(messages: Iterable[Message]) -> tuple[tuple[bytes, ...], list[Message]]:
    """All images in order, and the messages with their markers in place of `[img]`, or in front of the text."""
    images: list[bytes] = []
    marked: list[Message] = []
    for message in messages:
        content, front = message.content, ""
        for image in message.images:
            marker = f"[img-{len(images)}]"
            if _IMAGE in content:
                content = content.replace(_IMAGE, marker, 1)
            else:
                front += marker
            images.append(image)
        marked.append(replace(message, content=front + content))
    return tuple(images), marked


def _joined(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one role as one message, but for tools' results, which belong to different calls.

    Upstream keeps only the first one's calls, images and thinking; here nothing is lost.
    """
    joined: list[Message] = []
    for message in messages:
        if not joined or joined[-1].role != message.role or message.role == "tool":
            joined.append(message)
            continue
        last = joined.pop()
        joined.append(
            replace(
                last,
                content=_paragraphs(last.content, message.content),
                thinking=_paragraphs(last.thinking, message.thinking),
                images=(*last.images, *message.images),
                tool_calls=(*last.tool_calls, *message.tool_calls),
            )
        )
    return joined


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


class _Rendering:
    def __init__(self, template: Template, think: Think, today: datetime.date | None) -> None:
        self.template = template
        if not variables(template) & {"messages", "response"}:
            self.template = replace(template, root=(*template.root, _RESPONSE))
        self.today = today
        self.thinking = {
            "Think": bool(think),
            "ThinkLevel": think if isinstance(think, str) else "",
            "IsThinkSet": think is not None,
        }

    def once(self, template: Template | None = None, /, **values: Value) -> str:
        return (template or self.template).render({**values, **self.thinking}, today=self.today)

    def turn_by_turn(self, messages: Iterable[Message]) -> str:
        """For templates without `.Messages`: one execution per exchange; the last one ends where the answer begins."""
        pieces: list[str] = []
        turn = {"System": "", "Prompt": "", "Response": ""}
        for message in messages:
            place = _PLACES.get(message.role)
            if place is None:
                continue
            if any(turn[later] for later in _FROM[place]):
                pieces.append(self.once(**turn))
                turn = dict.fromkeys(turn, "")
            turn[place] = message.content
        unfinished = replace(self.template, root=_up_to_response(self.template.root)[0])
        return "".join([*pieces, self.once(unfinished, **turn)])


_PLACES: Final[Mapping[str, str]] = {"system": "System", "user": "Prompt", "assistant": "Response"}
_FROM: Final[Mapping[str, tuple[str, ...]]] = {
    "System": ("System", "Prompt", "Response"),
    "Prompt": ("Prompt", "Response"),
    "Response": ("Response",),
}
"""What an exchange that goes on at this place cannot have yet."""


def _up_to_response(nodes: Nodes) -> tuple[Nodes, bool]:
    """The nodes without what comes after `.Response` is printed, and whether it is printed in them at all.

    In the order of the text: in a branch that prints it, the `else` comes after and goes too.
    """
    kept: list[Node] = []
    for node in nodes:
        found = False
        match node:
            case Action() | TemplateCall():
                found = mentions(node, "Response")
            case Branch():
                body, found = _up_to_response(node.body)
                otherwise, also = ((), False) if found else _up_to_response(node.otherwise)
                node, found = replace(node, body=body, otherwise=otherwise), found or also
        kept.append(node)
        if found:
            return tuple(kept), True
    return tuple(kept), False
