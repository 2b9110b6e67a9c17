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
import ssl
from collections.abc import Iterable, Iterator
from typing import Any, Final
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
NO_ROUTE: Final = frozenset({http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED})
LISTINGS: Final = {"model": "list", "request": "ps --requests"}
"""Commands that list what a server may say it has not."""
HINTS: Final = {"invalid model name": "[HOST/][NAMESPACE/]MODEL[:TAG], each of letters, digits and '.', '_', '-'"}
"""What helps with errors that say too little."""
DEFAULT = "http://127.0.0.1:11434"
LOST = "connection to the server was lost"
LOOK = "its log may say why"


class ClientError(click.ClickException):
    """Whatever went wrong, as one line; click prints it as `Error: <text>` on stderr and exits with 1."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split("\n")).strip())

    def format_message(self) -> str:
        """What is printed: the text, and what helps if that is known."""
        hint = HINTS.get(self.message, "")
        return f"{self.message} ({hint})" if hint else self.message


class UnreachableError(ClientError):
    """No server answers at the address."""


class ResponseError(ClientError):
    """The server answered with an error: `status` is that of the response, 200 for an error within a stream."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    def format_message(self) -> str:
        """For a name that is not there where to look; a stream says so without that status."""
        absent = self.status == http.client.NOT_FOUND or self.message.endswith(" not found")
        listing = LISTINGS.get(self.message.partition(" ")[0], "") if absent else ""
        return f"{self.message} (see 'trio-ollama {listing}')" if listing else super().format_message()


class Client:
    """Speaks to the server at `base_url`. Every method raises ClientError.

    `patience`: seconds that the server may be silent. None for no limit: a cold model may load for minutes.
    """

    def __init__(self, base_url: str, *, patience: float | None = None) -> None:
        self.base_url = base_url
        self._url = urlsplit(base_url)
        self._patience = patience

    @classmethod
    def from_environment(cls, *, patience: float | None = None) -> Client:
        """The client of the server that `OLLAMA_HOST` names."""
        # Nothing but this variable: a mistake in one of the daemon's is none of the client's business.
        settings = Settings.from_environment({"OLLAMA_HOST": os.environ.get("OLLAMA_HOST", "")})
        for warning in settings.warnings:
            click.echo(f"Warning: {warning}", err=True)
        return cls(settings.host.base_url, patience=patience)

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
            connection = self._connected()
            stack.callback(connection.close)
            stack.callback(_shut_down, connection.sock)
            with self._plain_errors():
                connection.sock.settimeout(self._patience)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    # A server may refuse a body before it has read all of it: its answer says why.
                    connection.request(method, self._url.path + path, payload, headers)
                response = stack.enter_context(connection.getresponse())
            reply = Reply(response, self)
            if response.status >= http.client.BAD_REQUEST:
                raise ResponseError(response.status, reply.error_text())
            if response.status >= http.client.MULTIPLE_CHOICES:
                raise self.stranger(f"a redirect to {response.headers.get('Location', 'nowhere')}")
            yield reply

    def _connected(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        timeout = min(CONNECT_TIMEOUT, self._patience or CONNECT_TIMEOUT)
        try:
            connection = kind(self._url.hostname or "", self._url.port, timeout=timeout, blocksize=BLOCK)
            connection.connect()
        except ConnectionRefusedError:
            where = "" if self.base_url == DEFAULT else f" (nothing listens at {self.base_url}, as OLLAMA_HOST says)"
            raise UnreachableError(
                f"could not connect to ollama server, run 'trio-ollama serve' to start it{where}"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise self._unreachable(f"its certificate is not trusted, {error.verify_message}") from None
        except ssl.SSLError:
            raise self._unreachable("no HTTPS is spoken there") from None
        except OSError as error:  # no such host, no route, no answer in time
            raise self._unreachable(error.strerror or str(error)) from None
        except (http.client.InvalidURL, UnicodeError):
            raise self._unreachable("no host has such a name") from None
        return connection

    def _unreachable(self, reason: str) -> UnreachableError:
        return UnreachableError(f"could not connect to {self.base_url}: {reason} (check OLLAMA_HOST)")

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise ClientError(f"no answer from {self.base_url} within {self._patience:g} s") from None
        except http.client.BadStatusLine as error:
            if isinstance(error, http.client.RemoteDisconnected):
                raise ClientError(f"{LOST}: it closed it without an answer ({LOOK})") from None
            raise self.stranger("no HTTP") from None
        except (http.client.HTTPException, OSError) as error:
            broken = isinstance(error, http.client.IncompleteRead)
            told = getattr(error, "strerror", None) or str(error) or type(error).__name__
            detail = "its answer broke off" if broken else told
            raise ClientError(f"{LOST}: {detail} ({LOOK})") from None

    def stranger(self, what: str) -> ClientError:
        """For an answer that no Ollama server gives."""
        return ClientError(f"{self.base_url} is no Ollama server: its answer is {what} (check OLLAMA_HOST)")


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
        return self._object(data) if data.strip() else {}

    def objects(self) -> Iterator[Json]:
        """The NDJSON objects as they arrive. An object with `error` ends it: ResponseError."""
        buffer = b""
        while data := self._read_some():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                if line.strip():
                    yield _checked(self._object(line))
            if len(buffer) > MAX_LINE:
                raise ClientError(f"the server sent a line of more than {MAX_LINE} bytes")
        if buffer.strip():
            yield _checked(self._object(buffer))

    def error_text(self) -> str:
        """What the server says went wrong; its status line when it says nothing. ClientError for a web page."""
        text = self.read().decode("utf-8", "replace").strip()
        fallback = f"{self._response.status} {self._response.reason}"
        try:
            error = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            if text.startswith("<"):
                raise self._client.stranger(f"a web page, {fallback}") from None
            if self._response.status in NO_ROUTE:
                return f"{self._client.base_url} has no such route: {text or fallback}"
            return text or fallback
        if isinstance(error, dict):
            error = error.get("message")
        return str(error or fallback)

    def _object(self, data: bytes) -> Json:
        try:
            value = json.loads(data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            text = data.decode("utf-8", "replace").strip()
            raise self._client.stranger("a web page" if text.startswith("<") else f"no JSON object but {text[:60]!r}")
        return value

    def _read_some(self) -> bytes:
        with self._client._plain_errors():
            return self._response.read1()


def _shut_down(sock: socket.socket) -> None:
    # Not only close: the response holds the socket too, and the server must hear of a cancel now.
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _checked(value: Json) -> Json:
    if error := value.get("error"):
        raise ResponseError(http.client.OK, str(error))
    return value
