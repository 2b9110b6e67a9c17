"""POST /v1/responses. Nothing is kept: whoever goes on with a conversation sends all of it."""

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
from trio_ollama.server.openai.options import sampling_options, think_of
from trio_ollama.server.openai.responses_encode import ResponseEncoder
from trio_ollama.server.openai.responses_input import Tools, conversation
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services
from trio_ollama.server.streaming import EVENT_STREAM, stream_response

__all__ = ["ResponsesRequest", "responses"]


class ReasoningOptions(msgspec.Struct):
    """How hard to think, and how much to tell of it: all, here."""

    effort: str = ""
    summary: str = ""


class TextFormat(msgspec.Struct):
    """`text`, `json_object` or `json_schema`."""

    type: str = "text"
    name: str = ""
    schema: dict[str, Any] = {}


class TextOptions(msgspec.Struct):
    """The form of the answer."""

    format: TextFormat = msgspec.field(default_factory=TextFormat)


class ResponsesRequest(msgspec.Struct):
    """The body; fields that are not here are ignored."""

    model: str = ""
    input: Any = None
    instructions: str = ""
    stream: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: ReasoningOptions = msgspec.field(default_factory=ReasoningOptions)
    text: TextOptions = msgspec.field(default_factory=TextOptions)
    tools: list[dict[str, Any]] = []
    truncation: str = "auto"
    metadata: dict[str, Any] = {}
    previous_response_id: Any = None
    conversation: Any = None
    background: bool = False


async def responses() -> Response:
    """Answer a conversation in the shapes of OpenAI's newer route."""
    clock, at = Clock(), services()
    body = await read(ResponsesRequest, at.settings.max_body)
    _check(body)
    messages, tools = conversation(body.instructions, body.input), Tools(body.tools)
    wish = await chat_wish(
        at,
        body.model,
        sampling_options(body.max_output_tokens, body.temperature, body.top_p),
        think=think_of(body.reasoning.effort),
        tools=tools.functions,
        format=_format(body.text.format),
        truncate=body.truncation == "auto",
    )
    generation = await open_chat(at, request_stack(), wish, assemble(wish.target.model, messages), clock)
    encoder = ResponseEncoder(_repeated(body), tools)
    if body.stream:
        return await stream_response(AnswerStream(generation, encoder.chunk), EVENT_STREAM)
    return json_reply(encoder.whole(*await generation.collect()))


def _check(body: ResponsesRequest) -> None:
    """Refuse what would go wrong without a word: the end of a conversation that is not here. Raises `ApiError` 400."""
    for name in ("previous_response_id", "conversation", "background"):
        if getattr(body, name):
            raise ApiError(400, f"{name} is not supported: nothing is kept here, send the whole conversation as input")
    if body.truncation not in ("auto", "disabled"):
        raise ApiError(400, f'invalid truncation: "{body.truncation}" (must be "auto" or "disabled")')


def _format(wanted: TextFormat) -> Format:
    match wanted.type:
        case "json_object":
            return "json"
        case "json_schema":
            return wanted.schema
        case _:
            return None


def _repeated(body: ResponsesRequest) -> dict[str, Any]:
    """The fields of the request that stand in the answer, as they are in effect."""
    form = body.text.format
    schema = {"name": form.name, "schema": form.schema} if form.type == "json_schema" else {}
    return {
        "model": body.model,
        "instructions": body.instructions or None,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "reasoning": {"effort": body.reasoning.effort or None, "summary": body.reasoning.summary or None},
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": {"type": form.type, **schema}},
        "tools": body.tools,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": body.truncation,
    }
