"""Events in Anthropic's shapes: named server-sent events, or one message for the whole answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

from trio_ollama.server.anthropic.errors import error_object
from trio_ollama.server.inference.events import Done, Event, Failure, Token
from trio_ollama.server.replies import encode
from trio_ollama.server.streaming import named_event

__all__ = ["MessageEncoder"]

_REASONS: Final = {"stop": "end_turn", "length": "max_tokens"}


class MessageEncoder:
    """One message: blocks of thoughts, text and calls of tools, each with a begin and an end."""

    def __init__(self, model: str, request: str, prompt_tokens: int = 0) -> None:
        """`request` is the request's id, for errors; `prompt_tokens` what is known of the prompt at the start."""
        self._model = model
        self._request = request
        self._prompt_tokens = prompt_tokens
        self._begun = False
        self._next = 0
        """Index of the next block."""
        self._open = ""
        """Kind of the block that has begun: `text`, `thinking` or none."""
        self._head = b""
        """The part of its deltas that never changes, encoded once."""

    def chunk(self, events: Sequence[Event]) -> bytes:
        """The part of the stream for one batch of events."""
        pieces: list[bytes] = []
        if not self._begun:
            self._begun = True
            message = self._message([], None, self._prompt_tokens, 0)
            pieces.append(_event("message_start", message=message))
        for happened in events:
            match happened:
                case Token():
                    if happened.thinking:
                        self._delta("thinking", happened.thinking, pieces)
                    if happened.text:
                        self._delta("text", happened.text, pieces)
                case Done():
                    self._end(happened, pieces)
                case Failure():
                    # Upstream says nothing and ends the stream; clients raise this as an error.
                    pieces.append(named_event("error", error_object(happened.status, happened.text, self._request)))
        return b"".join(pieces)

    def whole(self, events: Sequence[Event], done: Done) -> dict[str, Any]:
        """The one object of an answer that is not streamed."""
        tokens = [happened for happened in events if isinstance(happened, Token)]
        content: list[dict[str, Any]] = []
        if thinking := "".join([token.thinking for token in tokens]):
            content.append({"type": "thinking", "thinking": thinking, "signature": ""})
        if text := "".join([token.text for token in tokens]):
            content.append({"type": "text", "text": text})
        for call in done.tool_calls:
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments})
        return self._message(content, _reason(done), done.prompt_tokens, done.output_tokens)

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, prompt_tokens: int, output_tokens: int
    ) -> dict[str, Any]:
        return {
            "id": "msg_" + secrets.token_hex(12),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": {"input_tokens": prompt_tokens, "output_tokens": output_tokens},
        }

    def _delta(self, kind: str, piece: str, pieces: list[bytes]) -> None:
        if kind != self._open:
            self._close(pieces)
            block = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            self._head = (
                b'event: content_block_delta\ndata: {"type":"content_block_delta","index":'
                + f'{self._begin(block, pieces)},"delta":{{"type":"{kind}_delta","{kind}":'.encode()
            )
            self._open = kind
        pieces.append(self._head + encode(piece) + b"}}\n\n")

    def _begin(self, block: dict[str, Any], pieces: list[bytes]) -> int:
        index, self._next = self._next, self._next + 1
        pieces.append(_event("content_block_start", index=index, content_block=block))
        return index

    def _close(self, pieces: list[bytes]) -> None:
        if self._open:
            self._open = ""
            pieces.append(_event("content_block_stop", index=self._next - 1))

    def _end(self, done: Done, pieces: list[bytes]) -> None:
        self._close(pieces)
        for call in done.tool_calls:
            index = self._begin({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, pieces)
            delta = {"type": "input_json_delta", "partial_json": encode(call.arguments).decode()}
            pieces.append(_event("content_block_delta", index=index, delta=delta))
            pieces.append(_event("content_block_stop", index=index))
        usage = {"input_tokens": done.prompt_tokens, "output_tokens": done.output_tokens}
        stop = {"stop_reason": _reason(done), "stop_sequence": None}
        pieces.append(_event("message_delta", delta=stop, usage=usage))
        pieces.append(_event("message_stop"))


def _event(kind: str, **fields: Any) -> bytes:
    return named_event(kind, {"type": kind, **fields})


def _reason(done: Done) -> str:
    return "tool_use" if done.tool_calls else _REASONS.get(done.reason, "stop_sequence")
