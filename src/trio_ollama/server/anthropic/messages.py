"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from quart import Response

from trio_ollama.server.anthropic.blocks import AnthropicMessage, AnthropicTool, conversation, functions
from trio_ollama.server.anthropic.encode import MessageEncoder
from trio_ollama.server.anthropic.errors import marked, request_id
from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.chat import count_prompt, open_chat
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import Message, assemble
from trio_ollama.server.inference.modes import Think
from trio_ollama.server.inference.prepare import chat_wish
from trio_ollama.server.inference.stream import AnswerStream
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import Services, services
from trio_ollama.server.streaming import EVENT_STREAM, stream_response

__all__ = ["CountRequest", "MessagesRequest", "count_tokens", "create_message"]

EFFORTS: Final[Mapping[str, Think]] = {
    **{effort: effort for effort in ("low", "medium", "high", "max")},
    "xhigh": "high",
}

CHARACTERS_PER_TOKEN: Final = 4
"""A guess, for the start of a stream whose runner has not told how long the prompt is."""


class ThinkingConfig(msgspec.Struct):
    """`enabled` or `disabled`; anything else leaves it to the model."""

    type: str = ""


class OutputConfig(msgspec.Struct):
    """How hard to think, where `thinking` does not say whether."""

    effort: str = ""


class CountRequest(msgspec.Struct):
    """The body of count_tokens, and what it has in common with the other; fields that are not here are ignored."""

    model: str = ""
    messages: list[AnthropicMessage] = []
    system: Any = None
    tools: list[AnthropicTool] = []
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None


class MessagesRequest(CountRequest):
    """The body; fields that are not here are ignored."""

    max_tokens: int = 0
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None


async def create_message() -> Response:
    """Answer a conversation in Anthropic's shapes."""
    clock, at = Clock(), services()
    body = await read(MessagesRequest, at.settings.max_body)
    if not body.model.strip():
        raise ApiError(400, "model is required")
    if body.max_tokens <= 0:
        raise ApiError(400, "max_tokens is required and must be positive")
    wish, messages = await _understood(at, body, _options(body))
    generation = await open_chat(at, request_stack(), wish, messages, clock)
    if not body.stream:
        encoder = MessageEncoder(body.model, request_id())
        return marked(json_reply(encoder.whole(*await generation.collect())))
    encoder = MessageEncoder(body.model, request_id(), generation.prompt_tokens or _guess(messages))
    response = await stream_response(AnswerStream(generation, encoder.chunk), EVENT_STREAM)
    response.headers["Cache-Control"] = "no-cache"
    return marked(response)


async def count_tokens() -> Response:
    """The tokens of a conversation, by the model's own template and vocabulary: it is loaded for that."""
    clock, at = Clock(), services()
    wish, messages = await _understood(at, await read(CountRequest, at.settings.max_body), {})
    return marked(json_reply({"input_tokens": await count_prompt(at, request_stack(), wish, messages, clock)}))


async def _understood(at: Services, body: CountRequest, options: Mapping[str, Any]) -> tuple[Wish, Sequence[Message]]:
    """What is wanted, checked, and the whole conversation."""
    if not body.model.strip():
        raise ApiError(400, "model is required")
    if not body.messages:
        raise ApiError(400, "messages is required")
    messages, tools = conversation(body.system, body.messages), functions(body.tools)
    wish = await chat_wish(at, body.model, options, think=_think(body), think_if_able=True, tools=tools)
    return wish, assemble(wish.target.model, messages)


def _options(body: MessagesRequest) -> dict[str, Any]:
    options = {
        "num_predict": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": body.stop_sequences,
    }
    return {name: value for name, value in options.items() if value is not None}


def _think(body: CountRequest) -> Think:
    if body.thinking is None:
        return EFFORTS.get(body.output_config.effort) if body.output_config else None
    return {"enabled": True, "disabled": False}.get(body.thinking.type)


def _guess(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages) // CHARACTERS_PER_TOKEN
