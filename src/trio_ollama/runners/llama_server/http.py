"""Just enough HTTP/1.1 and server-sent events for llama.cpp's server. Pure: no input or output.

A general parser costs several times more per token than the rest of the daemon; here all complete events of one read
are decoded in one go. Everything has a bound: a child that runs wild must not take the daemon's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

__all__ = ["LARGEST_ANSWER", "LARGEST_EVENT", "EventParser", "ProtocolError", "ResponseParser", "error_of", "request"]

LARGEST_HEAD: Final = 64 * 1024
LARGEST_EVENT: Final = 8 * 1000 * 1000
LARGEST_ANSWER: Final = 256 * 1024 * 1024
LONGEST_CHUNK_LINE: Final = 1024


class ProtocolError(Exception):
    """The child does not speak as expected."""


def request(method: str, path: str, body: bytes = b"", *, key: str | None = None) -> bytes:
    """One request on a connection of its own.

    No header of a client is passed on: some of them make the server ignore disconnects.
    """
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class ResponseParser:
    """Head and body of one response."""

    def __init__(self, limit: int = LARGEST_ANSWER) -> None:
        """`limit`: bytes of the body that may wait to be taken, and of one chunk."""
        self.status = 0
        """0 until the head is complete."""
        self.headers: dict[str, str] = {}
        """By name in lower case."""
        self.complete = False
        self._raw = bytearray()
        self._pieces: list[bytes | bytearray] = []
        """Of the body, not taken yet."""
        self.buffered = 0
        """Bytes of the body that wait to be taken."""
        self._left: int | None = None
        """Bytes of the body still to come; None when it is chunked or ends with the connection."""
        self._chunked = False
        self.limit = limit

    def feed(self, data: bytes) -> None:
        """Take in what was read; empty for the end of the connection.

        Raises `ProtocolError`, and `EOFError` when the connection ends before the response does.
        """
        if not data:
            self._end()
            return
        if self._chunked and not self._raw:
            # Nearly every read of a stream begins and ends with a chunk: nothing is copied to be kept.
            used = self._dechunk(data)
            if used < len(data):
                self._raw += data[used:]
        else:
            self._raw += data
            if self.status or self._head():
                self._read_body()
        if self.buffered > self.limit:
            raise ProtocolError("the response is too large")

    def take(self) -> bytes:
        """The part of the body that has come since the last time."""
        pieces, self._pieces, self.buffered = self._pieces, [], 0
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def _keep(self, piece: bytes | bytearray) -> None:
        self._pieces.append(piece)
        self.buffered += len(piece)

    def _head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0 or end > LARGEST_HEAD:
            if len(self._raw) > LARGEST_HEAD:
                raise ProtocolError("the head of the response is too large")
            return False
        first, *lines = self._raw[:end].decode("latin-1").split("\r\n")
        del self._raw[: end + 4]
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise ProtocolError(f"not an HTTP response: {first[:80]!r}")
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() and not self._chunked else None
        self.status = int(words[1])
        return True

    def _read_body(self) -> None:
        if self._chunked:
            del self._raw[: self._dechunk(self._raw)]
        elif self._left is None:
            self._keep(self._raw)
            self._raw = bytearray()
        else:
            self._keep(self._raw[: self._left])
            self._left -= min(self._left, len(self._raw))
            self._raw.clear()
            self.complete = self._left == 0

    def _dechunk(self, raw: bytes | bytearray) -> int:
        """Keep the chunks that are whole; returns how many bytes they are with their framing."""
        at = 0
        while not self.complete:
            line_end = raw.find(b"\r\n", at)
            if line_end < 0:
                if len(raw) - at > LONGEST_CHUNK_LINE:
                    raise ProtocolError("the size of a chunk is missing")
                break
            try:
                size = int(raw[at:line_end].partition(b";")[0], 16)
            except ValueError:
                raise ProtocolError("the size of a chunk is not a number") from None
            if not 0 <= size <= self.limit:
                raise ProtocolError("a chunk is too large")
            start = line_end + 2
            if size == 0:
                # after the last chunk: trailers, which nobody sends, up to an empty line
                self.complete = raw.startswith(b"\r\n", start) or raw.find(b"\r\n\r\n", start) >= 0
                break
            if len(raw) < start + size + 2:
                break
            self._keep(raw[start : start + size])
            at = start + size + 2
        return at

    def _end(self) -> None:
        if not self.complete and (not self.status or self._chunked or self._left):
            raise EOFError
        self.complete = True


class EventParser:
    """Server-sent events whose data are JSON objects."""

    def __init__(self) -> None:
        self.final = False
        """The terminal event has come: nothing of meaning follows."""
        self._rest = b""

    def feed(self, body: bytes) -> list[dict[str, Any]]:
        """The events that are complete now. Raises `ProtocolError`."""
        if not self._rest and body.startswith(b"data: {") and body.endswith(b"}\n\n") and body.count(b"\n") == 2:
            return self._found(body[6:-2])  # one event: nearly every read of a model that is slower than we are
        complete, separator, rest = (self._rest + body).rpartition(b"\n\n")
        self._rest = rest
        if len(rest) > LARGEST_EVENT:
            raise ProtocolError("an event is too large")
        if not separator:
            return []
        payloads = []
        for event in complete.split(b"\n\n"):
            payload = event[6:] if event.startswith(b"data: ") and b"\n" not in event else _payload(event)
            if payload == b"[DONE]":
                self.final = True
            elif payload:
                payloads.append(payload)
        return self._found(b",".join(payloads)) if payloads else []

    def _found(self, payloads: bytes) -> list[dict[str, Any]]:
        """The events with these payloads, of which there is at least one."""
        try:
            events = _DECODE(b"[%b]" % payloads)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"an event is not a JSON object: {error}") from None
        if _is_final(events[-1]):
            self.final = True
        return events


_DECODE: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


def _payload(event: bytes) -> bytes:
    """The data of an event with comments (`: ping`), several lines, or the old `error: {...}` field."""
    lines = []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        elif name == b"error":
            return b'{"error":' + value + b"}"
    return b"\n".join(lines)


def _is_final(event: Mapping[str, Any]) -> bool:
    if event.get("stop") is True:
        return True
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return False
    return choices[0].get("finish_reason") is not None


def error_of(answer: Any, fallback: str) -> tuple[str, str, int | None]:
    """Text, type and code of an error object, in whatever form the server put it."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict):
        code = error.get("code")
        text, kind = error.get("message"), error.get("type")
        return str(text or fallback), str(kind or ""), code if isinstance(code, int) else None
    return (error if isinstance(error, str) and error else fallback), "", None
