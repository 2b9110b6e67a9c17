"""POST /v1/completions. As upstream has it, the prompt goes through the model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.chat import check_abilities, check_template, load, open_chat
from trio_ollama.server.inference.completion import open_completion
from trio_ollama.server.inference.events import Done, Event, Token
from trio_ollama.server.inference.generation import Clock
from trio_ollama.server.inference.messages import Message, assemble
from trio_ollama.server.inference.options import merge
from trio_ollama.server.inference.prompters import infill
from trio_ollama.server.inference.stream import AnswerStream
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.openai.encode import Encoder, event, usage
from trio_ollama.server.openai.options import StreamOptions, sampling_options, stops
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
    logprobs: int | None = None


async def completions() -> Response:
    """Continue a prompt; without one, load the model."""
    clock, at = Clock(), services()
    body = await read(CompletionRequest, at.settings.max_body)
    if not 0 <= (body.logprobs or 0) <= 20:
        raise ApiError(400, "top_logprobs must be between 0 and 20")
    target = await find_target(at, body.model, WORDS["generate"])
    think = check_abilities(target, "generate", *(["insert"] if body.suffix else []))
    options = sampling_options(
        body.max_tokens,
        body.temperature,
        body.top_p,
        seed=body.seed,
        stop=stops(body.stop),
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
    )
    wish = Wish(
        target,
        merge(target.model.params, options),
        think=think,
        top_logprobs=body.logprobs,
        guard_repeats=True,
        cut_prompt=True,
    )
    encoder = CompletionEncoder(body.model, include_usage=body.stream_options.include_usage)
    if not body.prompt:
        await load(at, request_stack(), wish, clock)
        loaded = Done("load")
        if body.stream:
            return Response(encoder.chunk([loaded]), content_type=EVENT_STREAM)
        return json_reply(encoder.whole([], loaded))
    if body.suffix:
        prompt = await infill(at, wish, body.prompt, body.suffix)
        generation = await open_completion(at, request_stack(), wish, prompt, clock)
    else:
        check_template(target)
        messages = assemble(target.model, [Message(role="user", content=body.prompt)])
        generation = await open_chat(at, request_stack(), wish, messages, clock)
    if body.stream:
        return await stream_response(AnswerStream(generation, encoder.chunk), EVENT_STREAM)
    return json_reply(encoder.whole(*await generation.collect()))


class CompletionEncoder(Encoder):
    """`text_completion`, the same object for chunks and for the whole."""

    kind = "text_completion"
    prefix = "cmpl-"

    def __init__(self, model: str, *, include_usage: bool = False) -> None:
        super().__init__(model, include_usage=include_usage)
        self._offset = 0
        """Of the next token in the text, in characters."""

    def whole(self, events: Sequence[Event], done: Done) -> dict[str, Any]:
        """The one object of an answer that is not streamed."""
        tokens = [happened for happened in events if isinstance(happened, Token) and happened.text]
        text = "".join([token.text for token in tokens])
        return {**self._common, "choices": [self._choice(text, done.reason, tokens)], "usage": usage(done)}

    def _token(self, token: Token, pieces: list[bytes]) -> None:
        if token.text:
            pieces.append(self._chunk(token.text, None, [token]))

    def _end(self, done: Done, pieces: list[bytes]) -> None:
        pieces.append(self._chunk("", done.reason, ()))

    def _chunk(self, text: str, reason: str | None, tokens: Sequence[Token]) -> bytes:
        # Whoever wants the usage gets zeros until it is known.
        zeros = {"usage": usage(Done(""))} if self._include_usage else {}
        return event({**self._common, "choices": [self._choice(text, reason, tokens)], **zeros})

    def _choice(self, text: str, reason: str | None, tokens: Sequence[Token]) -> dict[str, Any]:
        choice: dict[str, Any] = {"text": text, "index": 0, "finish_reason": reason}
        if entries := [entry for token in tokens for entry in token.logprobs or ()]:
            choice["logprobs"] = self._logprobs(entries)
        return choice

    def _logprobs(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The older shape of probabilities, which this route has kept: a list for each kind of figure."""
        offsets = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(entry["token"])
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [_alternatives(entry["top_logprobs"]) for entry in entries if "top_logprobs" in entry]
            or None,
            "text_offset": offsets,
        }


def _alternatives(entries: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {entry["token"]: entry["logprob"] for entry in entries}
