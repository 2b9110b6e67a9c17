"""What Ollama does with accounts of its cloud: there are none here, so each of these routes answers 403 and says so."""

from __future__ import annotations

from typing import Any, Final

from quart import Response

from trio_ollama.server.errors import ApiError
from trio_ollama.server.routes import Route, View

__all__ = ["ROUTES"]


def _disabled(what: str) -> View:
    async def refuse(**_: Any) -> Response:
        raise ApiError(403, f"ollama cloud is disabled: {what}")

    refuse.__doc__ = f"A part of Ollama's cloud: {what} here."
    return refuse


_ACCOUNTS: Final = _disabled("accounts are unavailable")

ROUTES: Final[tuple[Route, ...]] = tuple(
    Route(rule, (method,), view, success=(), media=())
    for method, rule, view in (
        ("POST", "/api/me", _ACCOUNTS),
        ("POST", "/api/signout", _ACCOUNTS),
        ("DELETE", "/api/user/keys/<key>", _ACCOUNTS),
        ("POST", "/api/experimental/web_search", _disabled("web search is unavailable")),
        ("POST", "/api/experimental/web_fetch", _disabled("web fetch is unavailable")),
        ("GET", "/api/experimental/model-recommendations", _disabled("model recommendations are unavailable")),
    )
)
