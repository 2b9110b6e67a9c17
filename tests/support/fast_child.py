"""A stand-in for the `llama-server` binary that computes nothing: tokens at full speed, or at a rate that is asked for.

For measurements of what is around a runner. One process and one thread; one event is one write and one HTTP chunk, as
with the real one. The request's `seed` says when: 0, as fast as the reader takes them; positive, so many per second,
each stream in step with itself alone; negative, one for each datagram with this number that comes to the socket
`steps` beside the binary.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import sys
import time
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

__all__ = ["write_fast_child"]

BURST: Final = 64
"""Events for one reader before the others have their turn."""
TEXTS: Final = tuple(f" word{number}" for number in range(10))


def write_fast_child(folder: Path) -> Path:
    """Make an executable `llama-server` in `folder`."""
    binary = folder / "llama-server"
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P "{__file__}" --steps "{folder / "steps"}" "$@"\n')
    binary.chmod(0o755)
    return binary


def chat_event(text: str | None, **last: Any) -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    choice = {"finish_reason": None if text is not None else "length", "index": 0, "delta": delta}
    common = {"created": 1764500000, "id": "chatcmpl-4aBcDeFgHiJkLmNoPqRsTuVwXyZ01234", "model": "tiny"}
    return {"choices": [choice], **common, "system_fingerprint": "b1-0", "object": "chat.completion.chunk", **last}


def completion_event(text: str | None, **last: Any) -> dict[str, Any]:
    if text is None:
        return {"index": 0, "content": "", "stop": True, "stop_type": "limit", **last}
    return {"index": 0, "content": text, "tokens": [17], "stop": False, "id_slot": -1, "tokens_predicted": 5}


def framed(body: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class Answer:
    """A stream that is being written."""

    def __init__(self, connection: socket.socket, event: Callable[..., dict[str, Any]], tokens: int, pace: int) -> None:
        self.connection = connection
        self._tokens = [self._frame(event(text)) for text in TEXTS]
        timings = {"cache_n": 0, "prompt_n": 3, "prompt_ms": 1.0, "predicted_n": tokens, "predicted_ms": 1.0}
        self._last = self._frame(event(None, timings=timings)) + framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self._left = tokens
        self._rest = b""
        self._one = pace != 0
        """Each write is one event, and never has to wait."""
        self._pause = 1 / pace if pace > 0 else 0.0
        self.due = 0.0

    @staticmethod
    def _frame(event: dict[str, Any]) -> bytes:
        return framed(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")

    def write(self) -> bool:
        """What can be written and is due; False after the end. Raises `OSError`."""
        for _ in range(1 if self._one else BURST):
            data = self._rest or (self._tokens[self._left % len(TEXTS)] if self._left else self._last)
            try:
                sent = self.connection.send(data)
            except BlockingIOError:
                break
            begun = bool(self._rest)
            self._rest = data[sent:]
            if not begun:
                self._left -= 1
            if self._left < 0 and not self._rest:
                return False
        if self._pause:
            self.due = max(self.due + self._pause, time.monotonic() - self._pause)
        return True


class Server:
    def __init__(self, path: str, model: str, context: int, steps: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(512)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._steps = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._steps.bind(steps)
        self._steps.setblocking(False)
        self._selector.register(self._steps, selectors.EVENT_READ)
        self._stepped: dict[int, Answer] = {}
        self._asking: dict[socket.socket, bytes] = {}
        self._paced: dict[socket.socket, Answer] = {}
        self._props = {"default_generation_settings": {"n_ctx": context}, "model_path": model}
        self._number = count()

    def run(self) -> None:
        """Until it is killed."""
        while True:
            now = time.monotonic()
            for answer in list(self._paced.values()):
                if answer.due <= now:
                    self._write(answer)
            wait = min((answer.due for answer in self._paced.values()), default=now + 60) - time.monotonic()
            for key, _ in self._selector.select(max(0, wait)):
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    connection.setblocking(False)
                    self._asking[connection] = b""
                    self._selector.register(connection, selectors.EVENT_READ)
                elif key.fileobj is self._steps:
                    self._step()
                elif isinstance(key.data, Answer) and key.events & selectors.EVENT_WRITE:
                    self._write(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def _write(self, answer: Answer) -> None:
        with contextlib.suppress(OSError):
            if answer.write():
                return
        self._close(answer.connection)

    def _step(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._write(self._stepped[int(self._steps.recv(64))])

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._paced.pop(connection, None)
        self._asking.pop(connection, None)
        connection.close()

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            return self._close(connection)
        self._asking[connection] = asked = self._asking.get(connection, b"") + data
        head, found, body = asked.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or b"0"
        if found and len(body) >= int(length):
            self._answer(connection, head.split(b" ")[1].decode(), json.loads(body or b"{}"))
        return None

    def _answer(self, connection: socket.socket, path: str, body: dict[str, Any]) -> None:
        event = {"/completion": completion_event, "/v1/chat/completions": chat_event}.get(path)
        if event is None:
            answers: dict[str, Any] = {
                "/health": {"status": "ok"},
                "/props": self._props,
                "/tokenize": {"tokens": [1, 2]},
                "/apply-template": {"prompt": "a prompt"},
            }
            text = json.dumps(answers[path]).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            connection.sendall(head + text)
            return self._close(connection)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        pace = int(body.get("seed", 0))
        answer = Answer(connection, event, int(body["n_predict"]), pace)
        if pace > 0:
            answer.due = time.monotonic() + next(self._number) * 0.618 % 1 / pace
            self._paced[connection] = answer
        elif pace:
            self._stepped[pace] = answer
            self._write(answer)
        else:
            self._selector.modify(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, answer)
        return None


def main(arguments: list[str]) -> None:
    if "--list-devices" in arguments:
        print("Available devices:")
        return
    values = dict(pairwise(arguments))
    server = Server(values["--host"], values["--model"], int(values["-c"]) // int(values["-np"]), values["--steps"])
    print("main: server is listening on a socket", file=sys.stderr, flush=True)
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
