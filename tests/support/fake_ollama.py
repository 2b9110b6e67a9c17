"""A scripted Ollama server on a real socket, for the tests of what speaks to one.

It answers each route with what the test put there, remembers what it was asked, and can notice that a client left.
"""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Answer", "FakeOllama", "Request"]


@dataclass
class Answer:
    """What a route answers. `lines` makes it a stream of NDJSON objects."""

    body: Any = None
    """A JSON value, or a text sent as it is; None for an empty body."""
    status: int = 200
    lines: list[Any] | None = None
    cut: bool = False
    """End the connection in the middle of the stream, after `lines`."""
    deaf: bool = False
    """Answer without reading the body, and close."""
    endless: bool = False
    """After `lines`, wait until the client leaves, and set `FakeOllama.client_left`."""
    silent: bool = False
    """The same, before even the head of the response."""


@dataclass
class Request:
    """What was asked."""

    method: str
    path: str
    raw: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


@dataclass
class FakeOllama:
    """`answers` maps `"METHOD path"` to an Answer, or to several that are given one after another."""

    port: int
    answers: dict[str, Answer | list[Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    waiting: threading.Event = field(default_factory=threading.Event)
    """Set when an endless answer has said all it will say."""
    client_left: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def asked(self, route: str) -> list[Request]:
        """The requests of one `"METHOD path"`."""
        return [each for each in self.requests if f"{each.method} {each.path}" == route]

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[FakeOllama]:
        """Listens on a free port for the length of the block."""
        with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
            fake = cls(server.server_port)
            server.fake = fake  # type: ignore[attr-defined]
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield fake
            finally:
                server.shutdown()
                thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _serve(self) -> None:
        fake: FakeOllama = self.server.fake  # type: ignore[attr-defined]
        answer = fake.answers.get(f"{self.command} {self.path}", Answer("404 page not found", 404))
        if isinstance(answer, list):
            answer = answer.pop(0)
        raw = b""
        if answer.deaf:
            self.close_connection = True
        else:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fake.requests.append(Request(self.command, self.path, raw, dict(self.headers)))
        if answer.silent:
            self._wait_until_the_client_leaves(fake)
        elif answer.lines is None:
            self._whole(answer)
        else:
            self._stream(answer, fake)

    do_GET = do_POST = do_HEAD = do_DELETE = _serve

    def _whole(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, str) else "" if answer.body is None else json.dumps(answer.body)
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    def _stream(self, answer: Answer, fake: FakeOllama) -> None:
        assert answer.lines is not None
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in answer.lines:
            data = json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if answer.endless:
            self._wait_until_the_client_leaves(fake)
        elif answer.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _wait_until_the_client_leaves(self, fake: FakeOllama) -> None:
        self.close_connection = True
        fake.waiting.set()
        readable, _, _ = select.select([self.connection], [], [], 30)
        if readable and not self.connection.recv(1):
            fake.client_left.set()
