"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.chat import check_abilities, check_template, open_chat
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import assemble
from trio_ollama.server.inference.modes import Format, Think
from trio_ollama.server.inference.options import merge
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.openai.encode import ChatEncoder, OpenAIStream
from trio_ollama.server.openai.messages import OpenAIMessage, translate
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services
from trio_ollama.server.streaming import EVENT_STREAM, stream_response

__all__ = ["ChatCompletionRequest", "chat_completions", "sampling_options"]

EFFORTS: Final[Mapping[str, Think]] = {
    "none": False,
    "minimal": "low",
    **{effort: effort for effort in ("low", "medium", "high", "max")},
    "xhigh": "max",
    "ultra": "max",
}


class StreamOptions(msgspec.Struct):
    """Whether the stream ends with the numbers of tokens."""

    include_usage: bool = False


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
    think, form = _think(body), _format(body.response_format)
    messages = translate(body.messages)
    target = await find_target(at, body.model, WORDS["chat"])
    think = check_abilities(target, "chat", *(["tools"] if body.tools else []), think=think)
    check_template(target)
    wish = Wish(
        target,
        merge(target.model.params, sampling_options(body)),
        think=think,
        format=form,
        top_logprobs=body.top_logprobs if body.logprobs else None,
        tools=body.tools,
    )
    generation = await open_chat(at, request_stack(), wish, assemble(target.model, messages), clock)
    encoder = ChatEncoder(body.model, include_usage=body.stream_options.include_usage)
    if body.stream:
        return await stream_response(OpenAIStream(generation, encoder), EVENT_STREAM)
    return json_reply(encoder.whole(*await generation.collect()))


def sampling_options(body: Any) -> dict[str, Any]:
    """Our options for OpenAI's names. The two defaults of 1.0 come before the model's own values, as upstream does."""
    options = {
        "num_predict": body.max_tokens,
        "seed": body.seed,
        "stop": [body.stop] if isinstance(body.stop, str) else body.stop,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "frequency_penalty": body.frequency_penalty,
        "presence_penalty": body.presence_penalty,
    }
    return {name: value for name, value in options.items() if value is not None}


def _think(body: ChatCompletionRequest) -> Think:
    effort = (body.reasoning.effort if body.reasoning else "") or body.reasoning_effort
    if not effort:
        return None
    try:
        return EFFORTS[effort]
    except KeyError:
        choices = '"minimal", "low", "medium", "high", "xhigh", "ultra", "max", or "none"'
        raise ApiError(400, f'invalid reasoning value: "{effort}" (must be {choices})') from None


def _format(wanted: ResponseFormat | None) -> Format:
    match wanted:
        case ResponseFormat(type="json_object"):
            return "json"
        case ResponseFormat(type="json_schema", json_schema=JSONSchema(schema=schema)):
            return schema
        case _:
            return None
