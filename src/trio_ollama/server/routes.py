"""What a route is: a path with its methods, the view that serves it, and what the API's description says of it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
from quart import Response

from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import CanceledError
from trio_ollama.server.services import services

__all__ = ["BODY", "MODEL", "RUN", "Route", "View", "cancelable"]

View: TypeAlias = Callable[..., Awaitable[Response]]

BODY: Final = (400, 413)
"""Statuses of a body that cannot be used."""
MODEL: Final = (400, 403, 404)
"""Statuses of a name that cannot be used: invalid, in the cloud, not there."""
RUN: Final = (*BODY, *MODEL, 499, 501, 503)
"""Statuses of a request that wants something of a model."""


@dataclass(frozen=True, slots=True)
class Route:
    """`rule` is a path as the router has it; the rest describes what goes in and comes out."""

    rule: str
    methods: tuple[str, ...]
    view: View
    body: type[msgspec.Struct] | None = None
    """What the view makes of the request's body; None if it looks at none, or takes it as bytes."""
    errors: tuple[int, ...] = ()
    """Statuses other than of success, and than 403 and 500, which any route may have."""
    answer: type[msgspec.Struct] | None = None
    """The type of the answer, where it has one."""
    media: tuple[str, ...] = ("application/json",)
    """Content types of the answer; none for an answer without a body."""
    success: tuple[int, ...] = (200,)
    upload: bool = False
    """The body is bytes."""
    form: type[msgspec.Struct] | None = None
    """The body is a form in parts, with these fields."""
    inference: bool = False
    """It wants something of a model: it has an id, is listed and can be cancelled."""


def cancelable(view: View) -> View:
    """`view` as one of the live requests. Cancelled by its id, it answers 499 in its dialect."""

    @functools.wraps(view)
    async def serve(**arguments: Any) -> Response:
        live = services().requests.begin()
        with live.scope:
            response = await view(**arguments)
            live.answering = True
            return response
        # Only ours is caught here: with a client that left, all of the request is cancelled, and that goes on.
        live.watch.failed(CanceledError())
        live.cut_soon()
        await request_stack().aclose()  # what it held is free before its client hears of it
        raise CanceledError

    return serve
