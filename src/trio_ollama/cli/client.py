"""A small synchronous HTTP client for the commands: JSON calls, NDJSON streams, uploads.

One connection per exchange. Leaving an exchange, by its end, by an error or by Ctrl-C, shuts its socket down at once:
that is how a server learns that nobody waits for the answer any more.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import click

from trio_ollama import __version__
from trio_ollama.settings import Settings

__all__ = ["Client", "ClientError", "Json", "Reply", "ResponseError", "UnreachableError"]

Json = dict[str, Any]

CONNECT_TIMEOUT = 10.0
"""Seconds to connect. There is no limit on the answer: a cold model may load for minutes."""
MAX_LINE = 8 * 1024 * 1024
"""Bytes of one stream line, as upstream's client."""
BLOCK = 1024 * 1024
"""Bytes sent at a time by an upload."""


class ClientError(click.ClickException):
    """Whatever went wrong, as one line; click prints it as `Error: <text>` on stderr and exits with 1."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split("\n")).strip())


class UnreachableError(ClientError):
    """No server answers at the address."""


class ResponseError(ClientError):
    """The server answered with an error: `status` is that of the response, 200 for an error within a stream."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Client:
    """Speaks to the server at `base_url`. Every method raises ClientError."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._url = urlsplit(base_url)

    @classmethod
    def from_environment(cls) -> Client:
        """The client of the server that `OLLAMA_HOST` names."""
        # Nothing but this variable: a mistake in one of the daemon's is none of the client's business.
        settings = Settings.from_environment({"OLLAMA_HOST": os.environ.get("OLLAMA_HOST", "")})
        for warning in settings.warnings:
            click.echo(f"Warning: {warning}", err=True)
        return cls(settings.host.base_url)

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """One request, one JSON object; `{}` for an empty answer."""
        with self.exchange(method, path, body) as reply:
            return reply.json()

    @contextlib.contextmanager
    def stream(self, path: str, body: Json) -> Iterator[Iterator[Json]]:
        """POST `body`; gives the objects of the streamed answer as they come. Leaving early cancels the request."""
        with self.exchange("POST", path, body) as reply:
            yield reply.objects()

    def exists(self, path: str) -> bool:
        """Whether HEAD `path` answers 200; False for 404."""
        try:
            self.call("HEAD", path)
        except ResponseError as error:
            if error.status == http.client.NOT_FOUND:
                return False
            raise
        return True

    def upload(self, path: str, blocks: Iterable[bytes], size: int) -> None:
        """POST `size` raw bytes. A server that refuses early is heard, not reported as a broken pipe."""
        with self.exchange("POST", path, blocks, size=size) as reply:
            reply.read()

    @contextlib.contextmanager
    def exchange(
        self, method: str, path: str, body: Json | Iterable[bytes] | None = None, *, size: int | None = None
    ) -> Iterator[Reply]:
        """One request on a connection of its own, which is gone when this block is left, however it is left."""
        headers = {"User-Agent": f"trio-ollama/{__version__}", "Accept": "*/*", "Connection": "close"}
        payload: bytes | Iterable[bytes] | None = None
        if isinstance(body, dict):
            payload = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        elif body is not None:
            payload = body
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        with contextlib.ExitStack() as stack:
            connection = self._connection()
            stack.callback(connection.close)
            with self._plain_errors():
                connection.connect()
                stack.callback(_shut_down, connection.sock)
                connection.sock.settimeout(None)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    # A server may refuse a body before it has read all of it: its answer says why.
                    connection.request(method, self._url.path + path, payload, headers)
                response = stack.enter_context(connection.getresponse())
            reply = Reply(response, self)
            if response.status >= http.client.BAD_REQUEST:
                raise ResponseError(response.status, reply.error_text())
            yield reply

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=CONNECT_TIMEOUT, blocksize=BLOCK)

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except ConnectionRefusedError:
            raise UnreachableError("could not connect to ollama server, run 'trio-ollama serve' to start it") from None
        except (socket.gaierror, TimeoutError) as error:
            raise UnreachableError(f"could not connect to {self.base_url}: {error}") from None
        except (http.client.HTTPException, OSError) as error:
            detail = str(error) or type(error).__name__
            raise ClientError(f"connection to the server was lost: {detail}") from None


class Reply:
    """The response of one exchange; valid inside its block."""

    def __init__(self, response: http.client.HTTPResponse, client: Client) -> None:
        self._response = response
        self._client = client

    def read(self) -> bytes:
        """The rest of the body."""
        with self._client._plain_errors():
            return self._response.read()

    def json(self) -> Json:
        """The body as one JSON object; `{}` when it is empty."""
        data = self.read()
        return _object(data) if data.strip() else {}

    def objects(self) -> Iterator[Json]:
        """The NDJSON objects as they arrive. An object with `error` ends it: ResponseError."""
        buffer = b""
        while data := self._read_some():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                if line.strip():
                    yield _checked(_object(line))
            if len(buffer) > MAX_LINE:
                raise ClientError(f"the server sent a line of more than {MAX_LINE} bytes")
        if buffer.strip():
            yield _checked(_object(buffer))

    def error_text(self) -> str:
        """What the server says went wrong; its status line when it says nothing."""
        text = self.read().decode("utf-8", "replace").strip()
        fallback = f"{self._response.status} {self._response.reason}"
        try:
            error = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            return text or fallback
        if isinstance(error, dict):
            error = error.get("message")
        return str(error or fallback)

    def _read_some(self) -> bytes:
        with self._client._plain_errors():
            return self._response.read1()


def _shut_down(sock: socket.socket) -> None:
    # Not only close: the response holds the socket too, and the server must hear of a cancel now.
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _object(data: bytes) -> Json:
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ClientError(f"the server did not answer with a JSON object: {data[:80].decode('utf-8', 'replace')}")
    return value


def _checked(value: Json) -> Json:
    if error := value.get("error"):
        raise ResponseError(http.client.OK, str(error))
    return value
