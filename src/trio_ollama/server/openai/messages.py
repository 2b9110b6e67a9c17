"""OpenAI's messages as ours: content in parts, tool calls with their arguments as text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.messages import Function, Message, ToolCallRequest

__all__ = ["OpenAIFunction", "OpenAIMessage", "OpenAIToolCall", "image_from", "tool_call", "translate"]

_DATA_URL: Final = re.compile(r"data:(?:image/(?:jpeg|jpg|png|webp))?;base64,")


class OpenAIFunction(msgspec.Struct):
    """The function of a tool call."""

    name: str = ""
    arguments: str = ""


class OpenAIToolCall(msgspec.Struct):
    """A tool call that the model made earlier."""

    id: str = ""
    function: OpenAIFunction = msgspec.field(default_factory=OpenAIFunction)


class OpenAIMessage(msgspec.Struct):
    """One message; `content` is text, a list of parts, or nothing beside tool calls."""

    role: str = ""
    content: Any = None
    reasoning: str = ""
    tool_calls: list[OpenAIToolCall] = []
    tool_call_id: str = ""
    name: str = ""


def translate(messages: Sequence[OpenAIMessage]) -> list[Message]:
    """Our messages: each part of a content becomes one of its own. Raises `ApiError` 400."""
    called: dict[str, str] = {}
    result: list[Message] = []
    for message in messages:
        calls = [tool_call(call) for call in message.tool_calls]
        called |= {call.id: call.function.name for call in calls}
        name = (message.name or called.get(message.tool_call_id, "")) if message.role == "tool" else ""
        role = (
            "system" if message.role == "developer" else message.role
        )  # the newer word, which hardly a template knows
        parts = _parts(message)
        for index, part in enumerate(parts):
            whole = index == len(parts) - 1  # what belongs to the message as such goes with its last part
            part.role, part.tool_name, part.tool_call_id = role, name, message.tool_call_id
            if whole:
                part.thinking, part.tool_calls = message.reasoning, calls
            result.append(part)
    return result


def _parts(message: OpenAIMessage) -> list[Message]:
    match message.content:
        case str() as text:
            return [Message(content=text)]
        case list() as parts:
            # An empty list is an empty text, not a message that vanishes.
            return [_part(part) for part in parts] or [Message()]
        case None if message.tool_calls:
            return [Message()]
        case None:
            raise ApiError(400, "invalid message content type: <nil>")
        case _:
            raise ApiError(400, f"invalid message content type: {type(message.content).__name__}")


def _part(part: object) -> Message:
    match part:
        case {"type": "text", "text": str(text)}:
            return Message(content=text)
        case {"type": "image_url", "image_url": str(url)} | {"type": "image_url", "image_url": {"url": str(url)}}:
            return Message(images=[image_from(url)])
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return Message(images=[_decoded(data, "invalid audio input")])
        case _:
            raise ApiError(400, "invalid message format")


def image_from(url: str) -> bytes:
    """The image in a data URL. Raises `ApiError` 400."""
    if url.startswith(("http://", "https://")):
        raise ApiError(400, "image URLs are not currently supported, please use base64 encoded data instead")
    prefix = _DATA_URL.match(url)
    if prefix is None:
        raise ApiError(400, "invalid image input")
    return _decoded(url[prefix.end() :], "invalid image input")


def _decoded(text: str, complaint: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, complaint) from None


def tool_call(call: OpenAIToolCall) -> ToolCallRequest:
    """A call with its arguments read. Raises `ApiError` 400."""
    try:
        arguments = msgspec.json.decode(call.function.arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ApiError(400, "invalid tool call arguments") from None
    return ToolCallRequest(Function(call.function.name, arguments), call.id)
