"""Events in OpenAI's shapes: server-sent chunks, or one object for the whole answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trio_ollama.server.inference.events import Done, Event, Failure, Token, ToolCall
from trio_ollama.server.replies import encode

__all__ = ["ChatEncoder", "Encoder", "error_object", "event"]

FINGERPRINT: Final = "fp_ollama"
DONE: Final = b"data: [DONE]\n\n"
_TYPES: Final = {400: "invalid_request_error", 404: "not_found_error"}


def error_object(status: int, text: str) -> dict[str, Any]:
    """OpenAI's shape of an error."""
    kind = _TYPES.get(status, "api_error")
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + encode(value) + b"\n\n"


def usage(done: Done) -> dict[str, int]:
    """The token counts of a whole answer."""
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.output_tokens,
        "total_tokens": done.prompt_tokens + done.output_tokens,
    }


class Encoder:
    """What all streams of OpenAI's have in common: one id and one time of creation, a usage chunk, and an end."""

    kind = ""
    prefix = ""

    def __init__(self, model: str, *, include_usage: bool = False) -> None:
        self._include_usage = include_usage
        self._common = {
            "id": f"{self.prefix}{secrets.randbelow(1000)}",
            "object": self.kind,
            "created": int(datetime.now(UTC).timestamp()),
            "model": model,
            "system_fingerprint": FINGERPRINT,
        }

    def chunk(self, events: Sequence[Event]) -> bytes:
        """The part of the stream for one batch of events."""
        pieces: list[bytes] = []
        for happened in events:
            match happened:
                case Token():
                    self._token(happened, pieces)
                case Done():
                    self._end(happened, pieces)
                    if self._include_usage:
                        pieces.append(event({**self._common, "choices": [], "usage": usage(happened)}))
                    pieces.append(DONE)
                case Failure():
                    # Upstream sends an empty piece and loses the text; clients raise this as an error.
                    pieces.append(event(error_object(happened.status, happened.text)))
        return b"".join(pieces)

    def _token(self, token: Token, pieces: list[bytes]) -> None:
        raise NotImplementedError

    def _end(self, done: Done, pieces: list[bytes]) -> None:
        raise NotImplementedError


class ChatEncoder(Encoder):
    """`chat.completion` and its chunks."""

    kind = "chat.completion.chunk"
    prefix = "chatcmpl-"

    def __init__(self, model: str, *, include_usage: bool = False) -> None:
        super().__init__(model, include_usage=include_usage)
        # The parts of a chunk that never change, encoded once.
        self._head = b"data: " + encode(self._common)[:-1] + b',"choices":[{"index":0,"delta":{'
        self._role = b'"role":"assistant",'

    def whole(self, events: Sequence[Event], done: Done) -> dict[str, Any]:
        """The one object of an answer that is not streamed."""
        tokens = [happened for happened in events if isinstance(happened, Token)]
        message: dict[str, Any] = {"role": "assistant", "content": "".join([token.text for token in tokens])}
        if thinking := "".join([token.thinking for token in tokens]):
            message["reasoning"] = thinking
        if done.tool_calls:
            message["tool_calls"] = list(map(_call, done.tool_calls))
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": _reason(done)}
        if logprobs := [entry for token in tokens for entry in token.logprobs or ()]:
            choice["logprobs"] = {"content": logprobs}
        return {**self._common, "object": "chat.completion", "choices": [choice], "usage": usage(done)}

    def _token(self, token: Token, pieces: list[bytes]) -> None:
        if token.thinking:  # never beside content: clients know either, not both in one
            logprobs = None if token.text else token.logprobs
            pieces.append(self._delta(b'"content":"","reasoning":' + encode(token.thinking), logprobs))
        if token.text or not token.thinking:
            pieces.append(self._delta(b'"content":' + encode(token.text), token.logprobs))

    def _end(self, done: Done, pieces: list[bytes]) -> None:
        if done.tool_calls:
            pieces.append(self._delta(b'"content":"","tool_calls":' + encode(list(map(_call, done.tool_calls)))))
        pieces.append(self._head + b'},"finish_reason":' + encode(_reason(done)) + b"}]}\n\n")

    def _delta(self, fields: bytes, logprobs: list[dict[str, Any]] | None = None) -> bytes:
        role, self._role = self._role, b""
        extra = b',"logprobs":{"content":' + encode(logprobs) + b"}" if logprobs else b""
        return self._head + role + fields + b"}" + extra + b',"finish_reason":null}]}\n\n'


def _reason(done: Done) -> str:
    return "tool_calls" if done.tool_calls and done.reason == "stop" else done.reason


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "index": call.index,
        "type": "function",
        "function": {"name": call.name, "arguments": encode(call.arguments).decode()},
    }
