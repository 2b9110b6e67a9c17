"""Chat messages: as clients send them, and as the runner's chat route wants them."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from trio_ollama.models.model import Model

__all__ = ["Function", "Message", "ToolCallRequest", "assemble", "drop_old_thinking", "kind_of", "to_runner"]


class Function(msgspec.Struct):
    """The function of an earlier tool call."""

    name: str = ""
    arguments: dict[str, Any] = {}
    index: int = 0


class ToolCallRequest(msgspec.Struct):
    """A tool call that the model made in an earlier turn."""

    function: Function = msgspec.field(default_factory=Function)
    id: str = ""


class Message(msgspec.Struct):
    """One message of a conversation. Images (and sounds) are base64 in JSON, bytes here."""

    role: str = ""
    content: str = ""
    thinking: str = ""
    images: list[bytes] = []
    tool_calls: list[ToolCallRequest] = []
    tool_name: str = ""
    tool_call_id: str = ""


_THINK: Final = re.compile(r"^\s*<think>.*?</think>\s*", re.DOTALL)


def assemble(model: Model, messages: Sequence[Message], *, system: str = "", stored: bool = True) -> list[Message]:
    """The whole conversation: the model's `stored` messages, then the request's; `system` (else the model's own text)
    in front, unless the request begins with such a message itself."""
    own = model.messages if stored else ()
    whole = [*(Message(role=one.role, content=one.content) for one in own), *messages]
    text = system or model.system
    if text and not (messages and messages[0].role.lower() == "system"):
        whole.insert(0, Message(role="system", content=text))
    return whole


def drop_old_thinking(messages: Sequence[Message]) -> list[Message]:
    """Without the thoughts in answers before the last question: qwen3 and deepseek-r1 must not see them again."""
    users = [index for index, message in enumerate(messages) if message.role.lower() == "user"]
    last = users[-1] if users else -1
    return [
        msgspec.structs.replace(message, content=_THINK.sub("", message.content))
        if index < last and message.role.lower() == "assistant"
        else message
        for index, message in enumerate(messages)
    ]


def to_runner(message: Message) -> dict[str, Any]:
    """A message for `/v1/chat/completions`. Its thinking is not sent back, as upstream does not."""
    result: dict[str, Any] = {"role": message.role.lower(), "content": message.content}
    if message.images:
        text = [{"type": "text", "text": message.content}] if message.content else []
        result["content"] = text + _apart(list(map(_attachment, message.images)))
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.function.name,
                    "arguments": msgspec.json.encode(call.function.arguments).decode(),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        result["tool_call_id"] = message.tool_call_id
    if message.tool_name:
        result["name"] = message.tool_name
    return result


def kind_of(data: bytes) -> str:
    """What an attachment is, by its first bytes: `png`, `jpeg`, `gif`, `bmp`, `webp`, `wav`, `mp3`, or empty."""
    for kind, start in (("png", b"\x89PNG"), ("jpeg", b"\xff\xd8\xff"), ("gif", b"GIF8"), ("bmp", b"BM")):
        if data.startswith(start):
            return kind
    if data.startswith(b"RIFF"):
        return {b"WAVE": "wav", b"WEBP": "webp"}.get(data[8:12], "")
    # Frames of MP3 begin with eleven bits that are set; the next but two tell the layer, and 0 is none.
    frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] & 0x06
    return "mp3" if data.startswith(b"ID3") or frame else ""


def _apart(attachments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With a line break between them: of images that follow each other directly, the runner encodes all before it
    notices that nobody waits for them any more (R08)."""
    parts = attachments[:1]
    for attachment in attachments[1:]:
        parts += [{"type": "text", "text": "\n"}, attachment]
    return parts


def _attachment(data: bytes) -> dict[str, Any]:
    kind, text = kind_of(data), base64.b64encode(data).decode()
    if kind in ("wav", "mp3"):
        return {"type": "input_audio", "input_audio": {"data": text, "format": kind}}
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind or 'png'};base64,{text}"}}
