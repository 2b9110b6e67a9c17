"""How one request runs: the application class, and the request's own exit stack and body.

Quart's connection class gives every request a second task whose only work is to read ASGI messages: it drains uploads
without bound, and takes the end of a response for a disconnect (which leaves connections open for ever). Here the
connection layer itself cancels a request whose client has left, so a request is one task: it pulls its body piece by
piece, and what it acquires lies on an exit stack that is closed however the request ends.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, cast

import trio
from quart import Response, ResponseReturnValue, request
from quart.wrappers import Request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from quart_trio.wrappers.request import TrioBody, TrioRequest
from werkzeug.exceptions import HTTPException

__all__ = ["CUT", "STACK", "App", "RequestBody", "RequestConnection", "empty_response", "request_stack"]

STACK = "trio_ollama.stack"
"""Key of the request's exit stack in the ASGI scope."""
CUT = "trio_ollama.cut"
"""Key of a cancel scope around the request and its response: at its end the connection is cut off."""

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

logger = logging.getLogger(__name__)


def request_stack() -> contextlib.AsyncExitStack:
    """The exit stack of the current request; closed after the response, or when the client has left.

    To be asked for in the view: Quart's request context is gone while the response is sent.
    Register a lease right after acquiring it: `request_stack().callback(lease.release)`. When the client left, the
    stack is closed in a cancelled scope, so what is registered must not wait (R76).
    """
    return cast("dict[str, contextlib.AsyncExitStack]", request.scope)[STACK]


def empty_response(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """A response without a body, and so without a content type."""
    response = Response("", status=status)
    del response.headers["Content-Type"]
    response.headers.update(headers or {})
    return response


class RequestBody(TrioBody):
    """The body of a request, pulled from the connection as it is read.

    `async for chunk in request.body` gives the pieces in the order they arrive. Nothing is read ahead: while nobody
    iterates, the connection's small queue fills and TCP holds the client back (D6). `body.read_json` and
    `body.read_body` read all of it under a limit.
    """

    def __init__(self, expected_content_length: int | None, max_content_length: int | None) -> None:
        super().__init__(expected_content_length, max_content_length)
        self.expected_length = expected_content_length
        self._receive: Receive | None = None
        self._ended = False

    def pull_from(self, receive: Receive) -> None:
        """Take the body from these ASGI messages."""
        self._receive = receive

    def __aiter__(self) -> RequestBody:
        return self

    async def __anext__(self) -> bytes:
        """The next piece. Raises `trio.BrokenResourceError` if the client is gone before the end of its body."""
        while self._receive is not None and not self._ended:
            message = await self._receive()
            if message["type"] != "http.request":
                raise trio.BrokenResourceError("the client left in the middle of its request")
            self._ended = not message.get("more_body", False)
            if chunk := message.get("body", b""):
                return bytes(chunk)
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Any]:
        raise TypeError("a request body has no size limit of its own: iterate over it, or use read_body()")


class AppRequest(TrioRequest):
    """A request whose body is pulled, not pushed."""

    body_class = RequestBody


class RequestConnection(TrioASGIHTTPConnection):
    """Runs one request in the caller's task, under its own exit stack.

    The caller cancels it when the client leaves; no other sign of a disconnect is looked at.
    """

    async def __call__(self, receive: Receive, send: Send) -> None:
        try:
            request = self._create_request_from_scope(send)
        except (ValueError, IndexError):  # a target or a header that h11 lets pass and that is no URL
            await send({"type": "http.response.start", "status": 400, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        cast(RequestBody, request.body).pull_from(receive)
        scope = cast("dict[str, Any]", self.scope)
        with trio.CancelScope() as scope[CUT]:
            async with contextlib.AsyncExitStack() as scope[STACK]:
                response = await self.app.handle_request(request)
                await self._send_response(send, response)


class App(QuartTrio):
    """Quart with this server's request handling and without its limits."""

    asgi_http_class = RequestConnection
    request_class = AppRequest

    def __init__(self, name: str) -> None:
        super().__init__(name, static_folder=None)
        # R77: each of these three ends valid requests - streams after 60 s, uploads after 60 s or at 16 MiB.
        self.config["RESPONSE_TIMEOUT"] = None
        self.config["BODY_TIMEOUT"] = None
        self.config["MAX_CONTENT_LENGTH"] = None
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        self.url_map.merge_slashes = False

    def create_url_adapter(self, request: Request | None) -> Any:  # type: ignore[override]
        """Match by path alone: a strange Host header is for the guards to judge, not for the router to fail on."""
        if request is None:
            return super().create_url_adapter(None)
        return self.url_map.bind(
            "localhost",
            url_scheme=request.scheme,
            default_method=request.method,
            path_info=request.path,
            query_args=request.query_string.decode("latin1"),
        )

    async def handle_user_exception(
        self, error: Exception | BaseExceptionGroup[BaseException]
    ) -> HTTPException | ResponseReturnValue:
        """As Quart, but an error raised beside a cancellation is logged: quart-trio drops it without a word."""
        if isinstance(error, BaseExceptionGroup):
            cancelled, rest = error.split(trio.Cancelled)
            if cancelled is not None:
                if rest is not None:
                    logger.error("error in a request that was being cancelled", exc_info=rest)
                raise cancelled
        return await super().handle_user_exception(error)
