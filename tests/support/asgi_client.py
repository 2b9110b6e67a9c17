"""Requests to an application without a socket: one task per request, every chunk of the answer kept apart."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

__all__ = ["Answer", "send"]


@dataclass
class Answer:
    """A response as it was sent; `chunks` are the pieces of its body."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    complete: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The objects of an NDJSON stream."""
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def events(self) -> list[Any]:
        """The data of server-sent events; `[DONE]` as text."""
        pieces = self.text.split("\n\n")
        assert pieces.pop() == ""
        data = [piece.removeprefix("data: ") for piece in pieces]
        return [piece if piece == "[DONE]" else json.loads(piece) for piece in data]

    @property
    def named_events(self) -> list[Any]:
        """The data of server-sent events that have names; each name is the data's `type`."""
        pieces = self.text.split("\n\n")
        assert pieces.pop() == ""
        found = []
        for piece in pieces:
            name, data = piece.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
        return found


async def send(
    app: Any,
    method: str,
    path: str,
    body: object = b"",
    *,
    headers: Sequence[tuple[str, str]] = (),
    answer: Answer | None = None,
    breaks_off: bool = False,
    on_chunk: Callable[[], Awaitable[None]] | None = None,
) -> Answer:
    """Send one request and take its answer; `body` is bytes, or an object to send as JSON.

    An `answer` given from outside can be watched while it grows; `on_chunk` is called for each chunk. `breaks_off`: the
    client leaves after `body`, which was to go on.
    """
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    path, _, query = path.partition("?")
    messages = [{"type": "http.request", "body": data, "more_body": breaks_off}]
    result = answer or Answer()
    raw = [("host", "localhost:11434"), ("content-length", str(len(data)))]
    raw = [pair for pair in raw if pair[0] not in dict(headers)] + [*headers]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0", "spec_version": "2.1"},
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in raw],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 11434),
        "extensions": {},
    }

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def take(message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            result.status = message["status"]
            result.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            if message.get("body"):
                result.chunks.append(bytes(message["body"]))
                if on_chunk is not None:
                    await on_chunk()
            result.complete = not message.get("more_body", False)

    await app(scope, receive, take)
    return result
