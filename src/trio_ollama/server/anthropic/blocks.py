"""Anthropic's conversations as ours: content in blocks, tools and their results, a system text beside the messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.messages import Function, Message, ToolCallRequest
from trio_ollama.server.replies import convert

__all__ = ["AnthropicMessage", "AnthropicTool", "conversation", "functions"]

logger = logging.getLogger(__name__)


class AnthropicMessage(msgspec.Struct):
    """One message; `content` is text or a list of blocks."""

    role: str = ""
    content: Any = None


class AnthropicTool(msgspec.Struct):
    """A tool. One with a `type` other than `custom` is Anthropic's own: what it takes is known there only."""

    name: str = ""
    description: str = ""
    input_schema: dict[str, Any] = {}
    type: str = "custom"


class Text(msgspec.Struct):
    text: str


class Source(msgspec.Struct):
    """Where the bytes of an image are; only base64 can be read."""

    type: str = ""
    data: bytes = b""


class Image(msgspec.Struct):
    source: Source


class Thinking(msgspec.Struct):
    thinking: str


class ToolUse(msgspec.Struct):
    """A call that the model made earlier."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class ToolResult(msgspec.Struct):
    """What came of one; `content` is text or a list of blocks."""

    tool_use_id: str = ""
    content: Any = None


class SearchResult(msgspec.Struct):
    """What came of a web search at Anthropic, in an earlier answer of theirs."""

    tool_use_id: str = ""
    content: Any = None


_BLOCKS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "text": Text,
    "image": Image,
    "thinking": Thinking,
    "tool_use": ToolUse,
    "server_tool_use": ToolUse,
    "tool_result": ToolResult,
    "web_search_tool_result": SearchResult,
}


def conversation(system: object, messages: Sequence[AnthropicMessage]) -> list[Message]:
    """Our messages, the system text in front. Raises `ApiError` 400."""
    result: list[Message] = []
    if text := _text_of(system, "system"):
        result.append(Message(role="system", content=text))
    called: dict[str, str] = {}
    for index, message in enumerate(messages):
        result += _translated(message, called, f"messages[{index}]")
    return result


def functions(tools: Sequence[AnthropicTool]) -> list[dict[str, Any]]:
    """The tools as functions. Raises `ApiError` 400."""
    result = []
    for index, tool in enumerate(tools):
        if tool.type != "custom":
            logger.warning("ignoring the tool %r: %s is run by Anthropic only", tool.name, tool.type)
            continue
        if not tool.name:
            raise ApiError(400, f"tools[{index}]: name is required")
        function: dict[str, Any] = {"name": tool.name}
        if tool.description:
            function["description"] = tool.description
        function["parameters"] = tool.input_schema or {"type": "object", "properties": {}}
        result.append({"type": "function", "function": function})
    return result


def _translated(message: AnthropicMessage, called: dict[str, str], at: str) -> list[Message]:
    """The results of tools, each a message of its own, then the rest as one. `called` has the names of calls by id."""
    rest = Message(role=message.role)
    results: list[Message] = []
    for where, block in _blocks(message.content, f"{at}.content"):
        match block:
            case Text(text=text):
                rest.content += text
            case Image(source=source):
                rest.images.append(_image(source, where))
            case Thinking(thinking=thinking):
                rest.thinking += thinking
            case ToolUse():
                rest.tool_calls.append(_call(block, where))
                called[block.id] = block.name
            case ToolResult(tool_use_id=id_, content=content):
                text, images = _result(content, f"{where}.content")
                results.append(_answer(id_, text, called))
                rest.images += images  # templates know images in a user's message only
            case SearchResult(tool_use_id=id_, content=content):
                results.append(_answer(id_, _found(content), called))
    if results and rest == Message(role=message.role):
        return results
    return [*results, rest]


def _blocks(content: object, at: str) -> list[tuple[str, msgspec.Struct]]:
    """The blocks that we know, each with its place. Raises `ApiError` 400."""
    if isinstance(content, str):
        return [(at, Text(content))]
    if not isinstance(content, list):
        raise ApiError(400, f"{at} must be a string or an array of blocks")
    found = []
    for index, block in enumerate(content):
        where = f"{at}[{index}]"
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ApiError(400, f"{where} must be an object with a type")
        kind = _BLOCKS.get(block["type"])
        if kind is None:
            logger.warning("ignoring a block of type %r", block["type"])
            continue
        try:
            found.append((where, convert(block, kind)))
        except ApiError as error:
            raise ApiError(400, f"{where}: {error.text}") from None
    return found


def _text_of(content: object, at: str) -> str:
    if content is None:
        return ""
    return "".join([block.text for _, block in _blocks(content, at) if isinstance(block, Text)])


def _image(source: Source, where: str) -> bytes:
    if source.type != "base64":
        text = f"invalid image source type: {source.type}. Only base64 images are supported."
        raise ApiError(400, text)
    if not source.data:
        raise ApiError(400, f"{where}: the image is empty")
    return source.data


def _call(block: ToolUse, where: str) -> ToolCallRequest:
    for name in ("id", "name"):
        if not getattr(block, name):
            raise ApiError(400, f"{where}: tool_use block missing required '{name}' field")
    return ToolCallRequest(Function(block.name, block.input), block.id)


def _answer(id_: str, text: str, called: Mapping[str, str]) -> Message:
    return Message(role="tool", content=text, tool_name=called.get(id_, ""), tool_call_id=id_)


def _result(content: object, at: str) -> tuple[str, list[bytes]]:
    """Text and images of a tool's result."""
    if content is None:
        return "", []
    blocks = _blocks(content, at)
    text = "".join([block.text for _, block in blocks if isinstance(block, Text)])
    return text, [_image(block.source, where) for where, block in blocks if isinstance(block, Image)]


def _found(content: object) -> str:
    """The hits of a search in words; it may have failed, too."""
    match content:
        case list():
            hits = [hit for hit in content if isinstance(hit, dict)]
            return "\n".join(f"- {hit.get('title', '')}: {hit.get('url', '')}" for hit in hits)
        case {"error_code": str(code)}:
            return f"error: {code}"
        case _:
            return ""
