"""Responses and events, in pieces of any size, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from trio_ollama.runners.llama_server.http import (
    LARGEST_EVENT,
    LARGEST_HEAD,
    EventParser,
    ProtocolError,
    ResponseParser,
    error_of,
    request,
)

HEAD = b"HTTP/1.1 200 OK\r\nServer: x\r\n"


def parsed(raw: bytes, size: int, *, end: bool = False) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    body = b""
    for at in range(0, len(raw), size):
        parser.feed(raw[at : at + size])
        body += parser.take()
    if end:
        parser.feed(b"")
    return parser, body


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("rest", "end"),
    [
        (b"Content-Length: 5\r\n\r\nhello", False),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", False),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", False),
        (b"Connection: close\r\n\r\nhello", True),
    ],
)
def test_bodies(rest: bytes, end: bool, size: int) -> None:
    parser, body = parsed(HEAD + rest, size, end=end)
    assert parser.status == 200
    assert parser.headers["server"] == "x"
    assert body == b"hello"
    assert parser.complete


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200",
        HEAD + b"Content-Length: 5\r\n\r\nhell",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
def test_an_early_end_is_an_error(raw: bytes) -> None:
    with pytest.raises(EOFError):
        parsed(raw, 1000, end=True)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"x" * (LARGEST_HEAD + 1),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
    ],
)
def test_what_is_no_response_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        parsed(raw, len(raw))


def test_a_large_chunk_in_small_pieces() -> None:
    content = b"z" * 300_000
    raw = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    parser, body = parsed(raw, 4096)
    assert body == content
    assert parser.complete


def test_the_body_that_waits_is_bounded() -> None:
    parser = ResponseParser(limit=10)
    with pytest.raises(ProtocolError):
        parser.feed(HEAD + b"Content-Length: 20\r\n\r\n" + b"x" * 20)


STREAM = (
    b'data: {"content":"a\\n\\nb","stop":false}\n\n'
    b": ping\n\n"
    b'data:{"content":"b"}\n\n'
    b'event: x\ndata: {"content":\ndata: "c"}\n\n'
    b'data: {"content":"","stop":true}\n\n'
)


@pytest.mark.parametrize("size", [1, 5, 64, 10_000])
def test_events(size: int) -> None:
    parser = EventParser()
    events: list[dict[str, Any]] = []
    for at in range(0, len(STREAM), size):
        assert not parser.final
        events += parser.feed(STREAM[at : at + size])
    assert [event["content"] for event in events] == ["a\n\nb", "b", "c", ""]
    assert parser.final


@pytest.mark.parametrize(
    ("raw", "final"),
    [
        (b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n', False),
        (b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\n', True),
        (b'data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n', True),
        (b"data: [DONE]\n\n", True),
        (b'data: {"stop":false}\n\n', False),
    ],
)
def test_the_terminal_event(raw: bytes, final: bool) -> None:
    parser = EventParser()
    parser.feed(raw)
    assert parser.final is final


def test_the_old_form_of_an_error_event() -> None:
    assert EventParser().feed(b'error: {"code":500,"message":"x"}\n\n') == [{"error": {"code": 500, "message": "x"}}]


@pytest.mark.parametrize("raw", [b"data: {\n\n", b"data: 5\n\n", b"x" * (LARGEST_EVENT + 1)])
def test_what_is_no_event_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        EventParser().feed(raw)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"error": {"code": 400, "message": "m", "type": "t"}}, ("m", "t", 400)),
        ({"message": "m"}, ("m", "", None)),
        ({"error": "text"}, ("text", "", None)),
        ("plain", ("plain", "", None)),
        ({"other": 1}, ("fallback", "", None)),
        (None, ("fallback", "", None)),
        ("", ("fallback", "", None)),
    ],
)
def test_error_texts(answer: Any, expected: tuple[str, str, int | None]) -> None:
    assert error_of(answer, "fallback") == expected


def test_requests() -> None:
    assert request("GET", "/health").startswith(b"GET /health HTTP/1.1\r\nHost: ")
    posted = request("POST", "/x", b"{}", key="secret")
    assert b"\r\nAuthorization: Bearer secret\r\n" in posted
    assert posted.endswith(b"\r\nContent-Length: 2\r\n\r\n{}")
