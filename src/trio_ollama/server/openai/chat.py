"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.chat import open_chat
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import assemble
from trio_ollama.server.inference.modes import Format
from trio_ollama.server.inference.prepare import chat_wish
from trio_ollama.server.inference.stream import AnswerStream
from trio_ollama.server.openai.encode import ChatEncoder
from trio_ollama.server.openai.messages import OpenAIMessage, translate
from trio_ollama.server.openai.options import StreamOptions, sampling_options, stops, think_of
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services
from trio_ollama.server.streaming import EVENT_STREAM, stream_response

__all__ = ["ChatCompletionRequest", "chat_completions"]


class JSONSchema(msgspec.Struct):
    """The schema an answer must follow."""

    schema: dict[str, Any] = {}


class ResponseFormat(msgspec.Struct):
    """`text`, `json_object` or `json_schema`."""

    type: str = "text"
    json_schema: JSONSchema | None = None


class Reasoning(msgspec.Struct):
    """How hard to think."""

    effort: str = ""


class ChatCompletionRequest(msgspec.Struct):
    """The body; fields that are not here are ignored."""

    model: str = ""
    messages: list[OpenAIMessage] = []
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    """The newer name, which counts if both are given."""
    seed: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: ResponseFormat | None = None
    tools: list[dict[str, Any]] = []
    reasoning: Reasoning | None = None
    reasoning_effort: str = ""
    logprobs: bool = False
    top_logprobs: int = 0


async def chat_completions() -> Response:
    """Answer a conversation in OpenAI's shapes."""
    clock, at = Clock(), services()
    body = await read(ChatCompletionRequest, at.settings.max_body)
    if not body.messages:
        raise ApiError(400, "[] is too short - 'messages'")
    if not 0 <= body.top_logprobs <= 20:
        raise ApiError(400, "top_logprobs must be between 0 and 20")
    effort = (body.reasoning.effort if body.reasoning else "") or body.reasoning_effort
    think, form = think_of(effort), _format(body.response_format)
    messages = translate(body.messages)
    options = sampling_options(
        body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        body.temperature,
        body.top_p,
        seed=body.seed,
        stop=stops(body.stop),
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
    )
    wish = await chat_wish(
        at,
        body.model,
        options,
        think=think,
        tools=body.tools,
        format=form,
        top_logprobs=body.top_logprobs if body.logprobs else None,
    )
    generation = await open_chat(at, request_stack(), wish, assemble(wish.target.model, messages), clock)
    encoder = ChatEncoder(body.model, include_usage=body.stream_options.include_usage)
    if body.stream:
        return await stream_response(AnswerStream(generation, encoder.chunk), EVENT_STREAM)
    return json_reply(encoder.whole(*await generation.collect()))


def _format(wanted: ResponseFormat | None) -> Format:
    match wanted:
        case ResponseFormat(type="json_object"):
            return "json"
        case ResponseFormat(type="json_schema", json_schema=JSONSchema(schema=schema)):
            return schema
        case _:
            return None
