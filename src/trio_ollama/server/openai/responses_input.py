"""The conversation and the tools of /v1/responses as ours: items of several kinds become messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.messages import Message, ToolCallRequest
from trio_ollama.server.openai.messages import OpenAIFunction, OpenAIToolCall, image_from, tool_call
from trio_ollama.server.replies import convert

__all__ = ["Tools", "conversation"]

logger = logging.getLogger(__name__)

_NO_FILES: Final = "file inputs are not currently supported"


class MessageItem(msgspec.Struct):
    """A message; `content` is text or a list of parts."""

    role: str = ""
    content: Any = None


class CallItem(msgspec.Struct):
    """A call that the model made earlier; `arguments` is JSON."""

    call_id: str = ""
    name: str = ""
    namespace: str = ""
    arguments: str = ""


class OutputItem(msgspec.Struct):
    """What came of one; `output` is text or a list of parts."""

    call_id: str = ""
    output: Any = None


class SummaryText(msgspec.Struct):
    """A piece of a summary."""

    text: str = ""


class ReasoningItem(msgspec.Struct):
    """Earlier thoughts; what we sent as encrypted is their plain text."""

    summary: list[SummaryText] = []
    encrypted_content: str = ""


_KINDS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "message": MessageItem,
    "function_call": CallItem,
    "function_call_output": OutputItem,
    "reasoning": ReasoningItem,
}


class FunctionTool(msgspec.Struct):
    """A function, at the top or in a namespace."""

    name: str = ""
    description: str = ""
    parameters: dict[str, Any] = {}


class NamespaceTool(msgspec.Struct):
    """Functions under a common name."""

    name: str = ""
    tools: list[dict[str, Any]] = []


class Tools:
    """The tools of a request: as the model sees them, and under which names the client knows them."""

    def __init__(self, given: Sequence[Mapping[str, Any]]) -> None:
        """Raises `ApiError` 400. Tools that only OpenAI itself could run are left out."""
        self.functions: list[dict[str, Any]] = []
        self._spaces: dict[str, tuple[str, str]] = {}
        for index, tool in enumerate(given):
            at = f"tools[{index}]"
            match tool.get("type"):
                case "function":
                    self._add(tool, at)
                case "namespace":
                    space = _converted(tool, NamespaceTool, at)
                    for inner, member in enumerate(space.tools):
                        self._add(member, f"{at}.tools[{inner}]", space.name)
                case kind:
                    logger.warning("ignoring a tool of type %r", kind)

    def known_as(self, name: str) -> dict[str, str]:
        """The name of a called function as the client has it: with its namespace apart."""
        if name not in self._spaces:
            return {"name": name}
        space, inner = self._spaces[name]
        return {"name": inner, "namespace": space}

    def _add(self, tool: Mapping[str, Any], at: str, space: str = "") -> None:
        function = _converted(tool, FunctionTool, at)
        if not function.name:
            raise ApiError(400, f"{at}: name is required")
        name = _full(space, function.name)
        if space:
            self._spaces[name] = space, function.name
        described = {"description": function.description} if function.description else {}
        parameters = function.parameters or {"type": "object", "properties": {}}
        self.functions.append({"type": "function", "function": {"name": name, **described, "parameters": parameters}})


def conversation(instructions: str, given: object) -> list[Message]:
    """Our messages, the instructions in front. Raises `ApiError` 400, with the item's place."""
    result = [Message(role="system", content=instructions)] if instructions else []
    match given:
        case str():
            return [*result, Message(role="user", content=given)]
        case [_, *_]:
            return [*result, *_messages(given)]
        case None | []:
            raise ApiError(400, "input is required")
        case _:
            raise ApiError(400, "input must be a string or an array of items")


def _messages(items: Sequence[object]) -> list[Message]:
    """Calls and thoughts that stand beside a text of the assistant's belong to one message with it."""
    result: list[Message] = []
    called: dict[str, str] = {}
    thoughts = ""
    for index, item in enumerate(items):
        try:
            match _item(item):
                case MessageItem(role=role, content=content):
                    text, images = _content(content)
                    role = "system" if role == "developer" else role
                    thinking, thoughts = (thoughts, "") if role == "assistant" else ("", thoughts)
                    result.append(Message(role=role, content=text, images=images, thinking=thinking))
                case CallItem() as item:
                    call = _call(item)
                    called[call.id] = call.function.name
                    if thoughts or not result or result[-1].role != "assistant":
                        result.append(Message(role="assistant", thinking=thoughts))
                        thoughts = ""
                    result[-1].tool_calls.append(call)
                case OutputItem(call_id=id_, output=output):
                    text, images = _content(output)
                    result.append(Message(role="tool", content=text, tool_name=called.get(id_, ""), tool_call_id=id_))
                    if images:  # templates know images in a user's message only
                        result.append(Message(role="user", images=images))
                case ReasoningItem(summary=summary, encrypted_content=whole):
                    thoughts = whole or "".join([piece.text for piece in summary])
        except ApiError as error:
            raise ApiError(400, f"input[{index}]: {error.text}") from None
    return result


def _item(item: object) -> msgspec.Struct | None:
    """The item, or None for one that has nothing to say to a model."""
    if not isinstance(item, dict):
        raise ApiError(400, "an item must be an object")
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "web_search_call":
        return None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ApiError(400, f'unknown item type "{kind}"')
    return convert(item, _KINDS[kind])


def _call(item: CallItem) -> ToolCallRequest:
    for name in ("call_id", "name"):
        if not getattr(item, name):
            raise ApiError(400, f"{name} is required")
    function = OpenAIFunction(_full(item.namespace, item.name), item.arguments)
    return tool_call(OpenAIToolCall(item.call_id, function))


def _full(space: str, name: str) -> str:
    return f"{space}.{name}" if space else name


def _content(content: object) -> tuple[str, list[bytes]]:
    """Text and images of a message or an output."""
    match content:
        case str():
            return content, []
        case list():
            parts = list(map(_part, content))
            return "".join([part for part in parts if isinstance(part, str)]), [
                part for part in parts if isinstance(part, bytes)
            ]
        case None:
            raise ApiError(400, "content is required")
        case _:
            raise ApiError(400, "content must be a string or an array of parts")


def _part(part: object) -> str | bytes:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "input_image", "image_url": str(url)}:
            return image_from(url)
        case {"type": "input_image" | "input_file"}:
            raise ApiError(400, _NO_FILES)
        case {"type": str(kind)}:
            raise ApiError(400, f'invalid content part of type "{kind}"')
        case _:
            raise ApiError(400, "a content part must be an object with a type")


def _converted(value: Mapping[str, Any], kind: type[Any], at: str) -> Any:
    try:
        return convert(value, kind)
    except ApiError as error:
        raise ApiError(400, f"{at}: {error.text}") from None
