"""One request and its response, as the connection sees them."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.utils import suppress_body

__all__ = ["REQUEST_ID", "Exchange"]

BODY_QUEUE = 10
"""Pieces of a body (at most 64 KiB each) between the connection and the request; then TCP holds the client back."""
CLIENT_CLOSED_REQUEST = 499
"""What the access log says of a request whose client left; never sent."""

REQUEST_ID = "trio_ollama.request_id"
"""Key of the request's id in the ASGI scope, if it has one."""

access = logging.getLogger("trio_ollama.access")
logger = logging.getLogger(__name__)

Application = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Exchange:
    """Runs the application for one request, in a cancel scope that belongs to the connection.

    `respond` takes the ASGI messages of the response, and None when there are no more; `write` the pieces of a body
    whose length nobody knows. Those come by the thousands, and all layers in between have nothing to say to them.
    """

    def __init__(
        self, scope: Any, respond: Callable[[Any], Awaitable[None]], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._scope = scope
        self._respond = respond
        self._write = write
        self._streams = False
        self._sender, self._receiver = trio.open_memory_channel[Any](BODY_QUEUE)
        self._cancel_scope = trio.CancelScope()
        self._left = False
        self._complete = False
        self._status = 0
        self._length = math.inf
        """Bytes of the body that are still to come, if the response says how many."""

    def leave(self, reason: str, *, cut: bool = False) -> None:
        """The client is gone: cancel the request.

        Unless all of the response is on the way, and no write was `cut` short: then it may have read that to the end
        and left before the application has taken its last step.
        """
        if cut or not self._complete:
            self._left = True
            self._cancel_scope.cancel(reason)

    async def put(self, message: Any) -> None:
        """Take the next ASGI message for the request; waits while it does not read its body."""
        if message["type"] == "http.disconnect":
            return  # comes at the end of every response, too; a client that left is told by `leave`
        with contextlib.suppress(trio.BrokenResourceError):  # answered without reading all of its body
            await self._sender.send(message)

    async def run(self, app: Application) -> None:
        """Run the request to its end; logs its errors and one line for the access log."""
        started = trio.current_time()
        method, target = (
            self._scope["method"],
            self._scope["raw_path"].decode("ascii"),
        )  # as sent: no control characters
        try:
            with self._cancel_scope:
                try:
                    await app(self._scope, self._receiver.receive, self._send)
                except* Exception as errors:
                    logger.error("error in %s %s", method, target, exc_info=errors)
                await self._respond(None)
        finally:
            self._sender.close()
            self._receiver.close()
            status = CLIENT_CLOSED_REQUEST if self._left else self._status or 500
            duration = trio.current_time() - started
            id_ = self._scope.get(REQUEST_ID)
            access.info("%s %s %d %.3fs%s", method, target, status, duration, f" {id_}" if id_ else "")

    async def _send(self, message: Any) -> None:
        if self._left:
            await trio.lowlevel.checkpoint()  # raises Cancelled, except in a shielded cleanup
            return
        if message["type"] == "http.response.start":
            self._status = message["status"]
            lengths = [int(value) for name, value in message["headers"] if name.lower() == b"content-length"]
            self._length = lengths[0] if lengths else math.inf
            self._streams = not lengths and not suppress_body(self._scope["method"], self._status)
        elif message["type"] == "http.response.body":
            if self._streams and message.get("more_body", False):
                if body := message.get("body", b""):
                    await self._write(body)
                return
            self._length -= len(message.get("body", b""))
            self._complete = self._length <= 0 or not message.get("more_body", False)
        await self._respond(message)
