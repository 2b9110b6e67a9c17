"""POST /api/generate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from quart import Response

from trio_ollama.models.model import Model
from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.chat import check_abilities, check_template, load, open_chat, show_prompt
from trio_ollama.server.inference.completion import open_completion
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import Message, assemble
from trio_ollama.server.inference.modes import parse_format, parse_think
from trio_ollama.server.inference.options import merge
from trio_ollama.server.inference.prompters import infill
from trio_ollama.server.inference.stream import AnswerStream
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.native.common import check_top_logprobs, keep_alive_of, stops
from trio_ollama.server.native.debug import rendered
from trio_ollama.server.native.encode import GenerateEncoder
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services
from trio_ollama.server.streaming import NDJSON, stream_response
from trio_ollama.templates import GoTemplate, TemplateError, go_template

__all__ = ["GenerateRequest", "generate"]


class GenerateRequest(msgspec.Struct):
    """The body; `format`, `keep_alive` and `think` take several types and are checked on their own."""

    model: str = ""
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    context: list[int] = []
    stream: bool = True
    raw: bool = False
    format: Any = None
    keep_alive: Any = None
    images: list[bytes] = []
    options: dict[str, Any] = {}
    think: Any = None
    truncate: bool = True
    shift: bool | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    render_only: bool = msgspec.field(default=False, name="_debug_render_only")


async def generate() -> Response:
    """Continue a prompt; without one, load or unload the model."""
    clock, at = Clock(), services()
    body = await read(GenerateRequest, at.settings.max_body)
    check_top_logprobs(body.top_logprobs)
    keep_alive = keep_alive_of(body.keep_alive)
    think, form = parse_think(body.think), parse_format(body.format)
    target = await find_target(at, body.model, WORDS["generate"])
    encoder = GenerateEncoder(body.model)
    if not body.prompt and stops(keep_alive):
        at.scheduler.stop(target.facts.key)
        return json_reply(encoder.short("unload"))
    if body.raw and (body.template or body.system or body.context):
        raise ApiError(400, "raw mode does not support template, system, or context")
    if body.template:
        own = await at.in_thread(_own, body.template)
        target = replace(target, mode=own, stored=own, capabilities=target.capabilities | own.capabilities)
    think = check_abilities(target, "generate", *(["insert"] if body.suffix else []), think=think)
    wish = Wish(
        target,
        merge(target.model.params, body.options),
        keep_alive=keep_alive,
        think=think,
        format=form,
        shift=body.shift,
        truncate=body.truncate,
        top_logprobs=body.top_logprobs if body.logprobs else None,
        guard_repeats=True,
        cut_prompt=True,
        context=body.context,
        remember=not body.raw,
    )
    if not body.prompt:
        await load(at, request_stack(), wish, clock)
        return json_reply(encoder.short("load"))
    if body.raw or body.suffix:
        prompt = body.prompt if body.raw else await infill(at, wish, body.prompt, body.suffix)
        if body.render_only:
            return rendered(body.model, {"response": ""}, prompt)
        generation = await open_completion(at, request_stack(), wish, prompt, clock, body.images)
    else:
        check_template(target)
        if body.context and body.images:
            raise ApiError(400, "context and images cannot be combined")
        messages = _turns(target.model, body)
        if body.render_only:
            prompt = await show_prompt(at, request_stack(), wish, messages, clock)
            return rendered(body.model, {"response": ""}, prompt, messages)
        # Through the chat route, so that the runner tells thoughts from text.
        generation = await open_chat(at, request_stack(), wish, messages, clock)
    if body.stream:
        return await stream_response(AnswerStream(generation, encoder.lines), NDJSON)
    return json_reply(encoder.whole(*await generation.collect()))


def _own(template: str) -> GoTemplate:
    try:
        return go_template(template)
    except TemplateError as error:
        raise ApiError(400, f"template: {error}") from None  # **DIFF**: upstream says 500


def _turns(model: Model, body: GenerateRequest) -> list[Message]:
    question = Message(role="user", content=body.prompt, images=body.images)
    # What goes on from an earlier answer has the stored messages in its tokens.
    return assemble(model, [question], system=body.system, stored=not body.context)
