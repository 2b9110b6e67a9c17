"""Events in the shapes of /v1/responses: a numbered stream in which each item of the output has a begin and an end.

The answer as one object is what the stream's last event carries, so both always say the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trio_ollama.server.inference.events import Done, Event, Failure, Token, ToolCall
from trio_ollama.server.openai.responses_input import Tools
from trio_ollama.server.replies import encode
from trio_ollama.server.streaming import named_event

__all__ = ["ResponseEncoder"]

_BAD_PROMPT: Final = range(400, 500)


class ResponseEncoder:
    """One response. `given` are the fields of the request that its object repeats."""

    def __init__(self, given: Mapping[str, Any], tools: Tools) -> None:
        self._tools = tools
        self._number = 0
        """Of the next event."""
        self._response: dict[str, Any] = {
            "id": _new_id("resp"),
            "object": "response",
            "created_at": int(datetime.now(UTC).timestamp()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "previous_response_id": None,
            "store": False,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            **given,
            "output": [],
            "usage": None,
        }
        self._output: list[dict[str, Any]] = self._response["output"]
        self._item: _Text | None = None
        """The item that has begun."""

    def chunk(self, events: Sequence[Event]) -> bytes:
        """The part of the stream for one batch of events."""
        pieces: list[bytes] = []
        if not self._number:
            pieces.append(self._event("response.created", response=self._response))
            pieces.append(self._event("response.in_progress", response=self._response))
        for happened in events:
            match happened:
                case Token():
                    if happened.thinking:
                        self._delta(_Reasoning, happened.thinking, pieces)
                    if happened.text:
                        self._delta(_Message, happened.text, pieces)
                case Done():
                    self._end(happened, pieces)
                case Failure():
                    self._fail(happened, pieces)
        return b"".join(pieces)

    def whole(self, events: Sequence[Event], done: Done) -> dict[str, Any]:
        """The one object of an answer that is not streamed."""
        self.chunk([*events, done])
        return self._response

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return named_event(kind, {"type": kind, **fields, "sequence_number": number})

    def _delta(self, kind: type[_Reasoning] | type[_Message], piece: str, pieces: list[bytes]) -> None:
        if type(self._item) is not kind:
            self._close(pieces)
            self._begin(kind(len(self._output)), pieces)
        assert self._item is not None
        number, self._number = self._number, self._number + 1
        pieces.append(self._item.delta(piece, number))

    def _begin(self, item: _Text, pieces: list[bytes]) -> None:
        self._item = item
        for kind, fields in item.begin():
            pieces.append(self._event(kind, **fields))

    def _close(self, pieces: list[bytes]) -> None:
        if self._item is not None:
            for kind, fields in self._item.end():
                pieces.append(self._event(kind, **fields))
            self._output.append(self._item.object("completed"))
            self._item = None

    def _end(self, done: Done, pieces: list[bytes]) -> None:
        self._close(pieces)
        if not done.tool_calls and not any(item["type"] == "message" for item in self._output):
            self._begin(_Message(len(self._output)), pieces)  # an answer has one, were it empty
            self._close(pieces)
        for call in done.tool_calls:
            self._call(call, pieces)
        if done.reason == "length":
            # The status stays `completed`, as upstream has it; but who looks can see that the answer was cut.
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        self._response["status"] = "completed"
        self._response["usage"] = _usage(done)
        pieces.append(self._event("response.completed", response=self._response))

    def _call(self, call: ToolCall, pieces: list[bytes]) -> None:
        arguments = encode(call.arguments).decode()
        item = {"id": _new_id("fc"), "type": "function_call", "call_id": call.id, **self._tools.known_as(call.name)}
        at = {"item_id": item["id"], "output_index": len(self._output)}
        index = at["output_index"]
        begun = {**item, "status": "in_progress", "arguments": ""}
        ended = {**item, "status": "completed", "arguments": arguments}
        self._output.append(ended)
        pieces.append(self._event("response.output_item.added", output_index=index, item=begun))
        pieces.append(self._event("response.function_call_arguments.delta", **at, delta=arguments))
        pieces.append(self._event("response.function_call_arguments.done", **at, arguments=arguments))
        pieces.append(self._event("response.output_item.done", output_index=index, item=ended))

    def _fail(self, failure: Failure, pieces: list[bytes]) -> None:
        """Upstream ends the stream without a word; here what there is of the answer comes with the reason."""
        if self._item is not None:
            self._output.append(self._item.object("incomplete"))
            self._item = None
        code = "invalid_prompt" if failure.status in _BAD_PROMPT else "server_error"
        self._response["status"] = "failed"
        self._response["error"] = {"code": code, "message": failure.text}
        pieces.append(self._event("response.failed", response=self._response))


Said = tuple[str, dict[str, Any]]
"""Name and fields of an event."""


class _Text:
    """An item of the output that arrives piece by piece."""

    tail = b""
    """What a piece's event has behind the piece."""

    def __init__(self, prefix: str, index: int, delta: str, **place: Any) -> None:
        """`delta` names the event of a piece; `place` says where in the item its text is."""
        self.id = _new_id(prefix)
        self.index = index
        self.place: dict[str, Any] = {"item_id": self.id, "output_index": index, **place}
        self._pieces: list[str] = []
        # The parts of a piece's event that never change, encoded once.
        self._head = b"event: " + delta.encode() + b"\ndata: " + encode({"type": delta, **self.place})[:-1]
        self._head += b',"delta":'

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def delta(self, piece: str, number: int) -> bytes:
        self._pieces.append(piece)
        return self._head + encode(piece) + self.tail + b',"sequence_number":%d}\n\n' % number

    def begin(self) -> list[Said]:
        raise NotImplementedError

    def end(self) -> list[Said]:
        raise NotImplementedError

    def object(self, status: str) -> dict[str, Any]:
        """The item as it is now."""
        raise NotImplementedError

    def _added(self) -> Said:
        return "response.output_item.added", {"output_index": self.index, "item": self.object("in_progress")}

    def _done(self) -> Said:
        return "response.output_item.done", {"output_index": self.index, "item": self.object("completed")}


class _Reasoning(_Text):
    """Thoughts: the summary is all of them, and so is what a client sends back unread."""

    def __init__(self, index: int) -> None:
        super().__init__("rs", index, "response.reasoning_summary_text.delta", summary_index=0)

    def begin(self) -> list[Said]:
        return [self._added()]

    def end(self) -> list[Said]:
        return [("response.reasoning_summary_text.done", {**self.place, "text": self.text}), self._done()]

    def object(self, status: str) -> dict[str, Any]:
        text = self.text
        summary = [{"type": "summary_text", "text": text}] if text else []
        item = {"id": self.id, "type": "reasoning", "status": status, "summary": summary}
        return item | ({"encrypted_content": text} if text else {})


class _Message(_Text):
    """The text of the answer, in one part."""

    tail = b',"logprobs":[]'

    def __init__(self, index: int) -> None:
        super().__init__("msg", index, "response.output_text.delta", content_index=0)

    def begin(self) -> list[Said]:
        return [self._added(), ("response.content_part.added", {**self.place, "part": self._part()})]

    def end(self) -> list[Said]:
        return [
            ("response.output_text.done", {**self.place, "text": self.text, "logprobs": []}),
            ("response.content_part.done", {**self.place, "part": self._part()}),
            self._done(),
        ]

    def object(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self._part()]
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def _usage(done: Done) -> dict[str, Any]:
    return {
        "input_tokens": done.prompt_tokens,
        "input_tokens_details": {"cached_tokens": done.cached_tokens},
        "output_tokens": done.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": done.prompt_tokens + done.output_tokens,
    }
