"""Routes that only this server has: what is said when another one is asked for them."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from typing import Final

from trio_ollama.cli.client import Client, ClientError, ResponseError

__all__ = ["only_ours"]

NO_ROUTE: Final = frozenset({http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED, http.client.NOT_IMPLEMENTED})


@contextlib.contextmanager
def only_ours(client: Client, cannot: str = "cannot do that") -> Iterator[None]:
    """Around such a call: the refusal of a server that has no such route becomes one plain line."""
    try:
        yield
    except ResponseError as error:
        # A 404 of ours names what is not there.
        if error.status in NO_ROUTE and not str(error).startswith(("model ", "request ")):
            text = f"the server at {client.base_url} {cannot}: it is no trio-ollama of today"
            raise ClientError(text) from None
        raise
