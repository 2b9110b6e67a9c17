"""POST /v1/completions. As upstream has it, the prompt goes through the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.inference.chat import check_abilities, check_template, load, open_chat
from trio_ollama.server.inference.events import Done, Event, Token
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import Message, assemble
from trio_ollama.server.inference.options import merge
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.openai.chat import StreamOptions, sampling_options
from trio_ollama.server.openai.encode import Encoder, OpenAIStream, event, usage
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services
from trio_ollama.server.streaming import EVENT_STREAM, stream_response

__all__ = ["CompletionEncoder", "CompletionRequest", "completions"]


class CompletionRequest(msgspec.Struct):
    """The body; fields that are not here are ignored."""

    model: str = ""
    prompt: str = ""
    suffix: str = ""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0


async def completions() -> Response:
    """Continue a prompt; without one, load the model."""
    clock, at = Clock(), services()
    body = await read(CompletionRequest, at.settings.max_body)
    target = await find_target(at, body.model, WORDS["generate"])
    think = check_abilities(target, "generate", *(["insert"] if body.suffix else []))
    wish = Wish(
        target, merge(target.model.params, sampling_options(body)), think=think, guard_repeats=True, cut_prompt=True
    )
    encoder = CompletionEncoder(body.model, include_usage=body.stream_options.include_usage)
    if not body.prompt:
        await load(at, request_stack(), wish, clock)
        return json_reply(encoder.whole([], Done("load")))
    check_template(target)
    messages = assemble(target.model, [Message(role="user", content=body.prompt)])
    generation = await open_chat(at, request_stack(), wish, messages, clock)
    if body.stream:
        return await stream_response(OpenAIStream(generation, encoder), EVENT_STREAM)
    return json_reply(encoder.whole(*await generation.collect()))


class CompletionEncoder(Encoder):
    """`text_completion`, the same object for chunks and for the whole."""

    kind = "text_completion"
    prefix = "cmpl-"

    def whole(self, events: Sequence[Event], done: Done) -> dict[str, Any]:
        """The one object of an answer that is not streamed."""
        text = "".join([happened.text for happened in events if isinstance(happened, Token)])
        return {**self._common, "choices": [_choice(text, done.reason)], "usage": usage(done)}

    def _token(self, token: Token, pieces: list[bytes]) -> None:
        if token.text:
            pieces.append(self._chunk(token.text, None))

    def _end(self, done: Done, pieces: list[bytes]) -> None:
        pieces.append(self._chunk("", done.reason))

    def _chunk(self, text: str, reason: str | None) -> bytes:
        # Whoever wants the usage gets zeros until it is known.
        zeros = {"usage": usage(Done(""))} if self._include_usage else {}
        return event({**self._common, "choices": [_choice(text, reason)], **zeros})


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": 0, "finish_reason": reason}
