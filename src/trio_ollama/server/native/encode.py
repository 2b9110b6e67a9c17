"""Events as the native dialect's objects: one JSON object per line, or one for the whole answer.

A line is mostly constant, and a fast model makes thousands of them per second: what is constant is encoded once, the
time stamp once per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trio_ollama.server.inference.events import Done, Event, Failure, Token, ToolCall
from trio_ollama.server.replies import encode, utc_now

__all__ = ["ChatEncoder", "GenerateEncoder", "NativeEncoder", "error_line"]

_LAST: Final = b',"done":false}\n'


def error_line(text: str) -> bytes:
    """The line that ends a stream which went wrong."""
    return encode({"error": text}) + b"\n"


class NativeEncoder:
    """What generate and chat have in common; `_token` and `_body` are the difference."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._head = b'{"model":' + encode(model) + b',"created_at":'

    def lines(self, events: Sequence[Event]) -> bytes:
        """A chunk of the stream for one batch of events."""
        head = self._head + encode(utc_now())
        return b"".join([self._line(head, event) for event in events])

    def whole(self, events: Sequence[Event], done: Done) -> dict[str, Any]:
        """The one object of an answer that is not streamed."""
        tokens = [event for event in events if isinstance(event, Token)]
        body = self._body(
            "".join([token.text for token in tokens]), "".join([token.thinking for token in tokens]), done.tool_calls
        )
        logprobs = [entry for token in tokens for entry in token.logprobs or ()]
        if logprobs:
            body["logprobs"] = logprobs
        return self._final(body, done)

    def short(self, reason: str) -> dict[str, Any]:
        """The answer to a request that only loads (`load`) or unloads (`unload`) the model."""
        return self._final(self._body("", "", ()), Done(reason))

    def _line(self, head: bytes, event: Event) -> bytes:
        match event:
            case Token():
                return head + self._token(event) + _LAST
            case Done():
                return encode(self._final(self._body("", "", event.tool_calls), event)) + b"\n"
            case Failure():
                return error_line(event.text)

    def _final(self, body: dict[str, Any], done: Done) -> dict[str, Any]:
        metrics = {
            "total_duration": done.total_ns,
            "load_duration": done.load_ns,
            "prompt_eval_count": done.prompt_tokens,
            "prompt_eval_duration": done.prompt_ns,
            "eval_count": done.output_tokens,
            "eval_duration": done.output_ns,
        }
        return {
            "model": self._model,
            "created_at": utc_now(),
            **body,
            "done": True,
            "done_reason": done.reason,
            **({"context": done.context} if done.context else {}),
            **{name: value for name, value in metrics.items() if value},
        }

    def _token(self, token: Token) -> bytes:
        raise NotImplementedError

    def _body(self, text: str, thinking: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
        raise NotImplementedError


class GenerateEncoder(NativeEncoder):
    """`response` and `thinking` at the top level."""

    def _token(self, token: Token) -> bytes:
        line = b',"response":' + encode(token.text)
        if token.thinking:
            line += b',"thinking":' + encode(token.thinking)
        return line + _logprobs(token)

    def _body(self, text: str, thinking: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
        body: dict[str, Any] = {"response": text}
        if thinking:
            body["thinking"] = thinking
        if calls:
            body["tool_calls"] = list(map(_call, calls))
        return body


class ChatEncoder(NativeEncoder):
    """The same inside a `message`."""

    def _token(self, token: Token) -> bytes:
        line = b',"message":{"role":"assistant","content":' + encode(token.text)
        if token.thinking:
            line += b',"thinking":' + encode(token.thinking)
        return line + b"}" + _logprobs(token)

    def _body(self, text: str, thinking: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = list(map(_call, calls))
        return {"message": message}


def _logprobs(token: Token) -> bytes:
    return b',"logprobs":' + encode(token.logprobs) if token.logprobs else b""


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": call.arguments}}
