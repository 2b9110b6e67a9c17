"""The requests for models that are being served, so that they can be looked at and cancelled by their ids.

A request can be cancelled by somebody else than its client, and its client is told. While its view runs, that is the
end of a scope of the request's own. Once the answer has begun, only the wait for the runner is interrupted: the stream
then says itself why it ends (R75), and a client that does not take this either loses the connection soon after.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Protocol, cast

import trio
from quart import Response, request

from trio_ollama.scheduler import Demand, Lease
from trio_ollama.server.asgi import CUT, request_stack
from trio_ollama.server.errors import CanceledError
from trio_ollama.server.exchange import REQUEST_ID
from trio_ollama.server.inference.watch import Watch

__all__ = ["HEADER", "Answer", "LiveRequest", "LiveRequests", "current", "dialect", "mark", "new_id", "peek"]

HEADER: Final = "X-Request-Id"
"""Of a request: the id that the client wants it to have. Of its answer: the one it has."""

LAST_WORDS: Final = 1.0
"""Seconds in which a cancelled request has to be answered; a client that has not read by then is cut off (R74)."""

_KEY: Final = "trio_ollama.live"
_SANE: Final = re.compile(r"[!-.0-~][!-~]{0,127}")
"""Visible ASCII; no slash at the begin, where a path would lose it."""


class Answer(Protocol):
    """What can be seen of a running answer."""

    @property
    def tokens(self) -> int:
        """Of the answer, so far."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """As far as the runner has told; 0 before that."""
        ...

    @property
    def prompt_done(self) -> int:
        """Tokens of the prompt that it has read, or had in its cache."""
        ...


class LiveRequest:
    """One request, from its head to the end of its answer."""

    def __init__(self, id_: str, method: str, path: str, client: str, cut: trio.CancelScope) -> None:
        self.id = id_
        self.method = method
        self.path = path
        self.client = client
        self.arrived = trio.current_time()
        self.at = datetime.now(UTC)
        self.scope = trio.CancelScope()
        """Around its view, and nothing else."""
        self.canceled = False
        self.answering = False
        """Its view is over: what remains is the answer's way to the client."""
        self.demand: Demand | None = None
        """What it wants of the scheduler, as soon as that is known."""
        self.lease: Lease | None = None
        self.answer: Answer | None = None
        self.watch = Watch()
        self._cut = cut

    def cancel(self) -> None:
        """End it, and let its client know. Synchronous and idempotent."""
        if self.canceled:
            return
        self.canceled = True
        self.scope.cancel("canceled by its id")
        if self.answering:
            self.cut_soon()
            if self.lease is not None:
                self.lease.abandon(CanceledError())

    def cut_soon(self) -> None:
        """From now on its client has `LAST_WORDS` seconds to take the rest of its answer."""
        self._cut.deadline = trio.current_time() + LAST_WORDS


class LiveRequests:
    """All of them, in order of arrival. Two may have the same id, if a client gives it twice."""

    def __init__(self) -> None:
        self._all: dict[LiveRequest, None] = {}

    def __iter__(self) -> Iterator[LiveRequest]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def begin(self) -> LiveRequest:
        """The current request is one of them, until its stack is closed."""
        scope = cast("dict[str, Any]", request.scope)
        live = LiveRequest(_id(), request.method, request.path, _address(scope.get("client")), scope[CUT])
        scope[_KEY], scope[REQUEST_ID] = live, live.id
        self._all[live] = None
        request_stack().callback(self._all.pop, live)
        return live


def current() -> LiveRequest:
    """The current request, which wants something of a model."""
    return cast("dict[str, LiveRequest]", request.scope)[_KEY]


def peek() -> LiveRequest | None:
    """The current request; None if it wants nothing of a model."""
    return cast("dict[str, LiveRequest]", request.scope).get(_KEY)


async def mark(response: Response) -> Response:
    """Tell the id, also with an error."""
    if (live := peek()) is not None:
        response.headers[HEADER] = live.id
    return response


def dialect(path: str) -> str:
    """`ollama`, `openai` or `anthropic`: whose shapes the answers of a path have."""
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return "anthropic"
    return "openai" if path.startswith("/v1/") else "ollama"


def new_id() -> str:
    """An id that nobody has: 24 hex digits."""
    return "req_" + secrets.token_hex(12)


def _id() -> str:
    given = request.headers.get(HEADER, "")
    return given if _SANE.fullmatch(given) else new_id()


def _address(client: tuple[str, int] | None) -> str:
    if not client:
        return ""
    host, port = client[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
