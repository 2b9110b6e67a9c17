"""POST /api/chat."""

from __future__ import annotations

from typing import Any

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.inference.chat import check_abilities, check_template, load, open_chat, show_prompt
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import Message, assemble
from trio_ollama.server.inference.modes import parse_format, parse_think
from trio_ollama.server.inference.options import merge
from trio_ollama.server.inference.stream import AnswerStream
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.native.common import check_top_logprobs, keep_alive_of, stops
from trio_ollama.server.native.debug import rendered
from trio_ollama.server.native.encode import ChatEncoder
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services
from trio_ollama.server.streaming import NDJSON, stream_response

__all__ = ["ChatRequest", "chat"]


class ChatRequest(msgspec.Struct):
    """The body; `format`, `keep_alive` and `think` take several types and are checked on their own."""

    model: str = ""
    messages: list[Message] = []
    stream: bool = True
    format: Any = None
    keep_alive: Any = None
    tools: list[dict[str, Any]] = []
    options: dict[str, Any] = {}
    think: Any = None
    truncate: bool = True
    shift: bool | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    render_only: bool = msgspec.field(default=False, name="_debug_render_only")


async def chat() -> Response:
    """Answer a conversation; without messages, load or unload the model."""
    clock, at = Clock(), services()
    body = await read(ChatRequest, at.settings.max_body)
    check_top_logprobs(body.top_logprobs)
    keep_alive = keep_alive_of(body.keep_alive)
    think, form = parse_think(body.think), parse_format(body.format)
    target = await find_target(at, body.model, WORDS["chat"])
    encoder = ChatEncoder(body.model)
    if not body.messages and stops(keep_alive):
        at.scheduler.stop(target.facts.key)
        return json_reply(encoder.short("unload"))
    think = check_abilities(target, "chat", *(["tools"] if body.tools else []), think=think)
    wish = Wish(
        target,
        merge(target.model.params, body.options),
        keep_alive=keep_alive,
        think=think,
        format=form,
        shift=body.shift,
        truncate=body.truncate,
        top_logprobs=body.top_logprobs if body.logprobs else None,
        tools=body.tools,
    )
    if not body.messages:
        await load(at, request_stack(), wish, clock)
        return json_reply(encoder.short("load"))
    check_template(target)
    messages = assemble(target.model, body.messages)
    if body.render_only:
        prompt = await show_prompt(at, request_stack(), wish, messages, clock)
        return rendered(body.model, {"message": {"role": "assistant", "content": ""}}, prompt, messages)
    generation = await open_chat(at, request_stack(), wish, messages, clock)
    if body.stream:
        return await stream_response(AnswerStream(generation, encoder.lines), NDJSON)
    return json_reply(encoder.whole(*await generation.collect()))
