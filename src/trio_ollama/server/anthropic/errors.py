"""Errors in Anthropic's shape, and the id of a request, which stands in the answer's head and in an error."""

from __future__ import annotations

import secrets
from typing import Any, Final

from quart import Response, g

from trio_ollama.server.replies import json_reply

__all__ = ["error_object", "is_ours", "marked", "refusal", "request_id"]

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def is_ours(path: str) -> bool:
    """True for the paths whose errors have this shape."""
    return path == "/v1/messages" or path.startswith("/v1/messages/")


def request_id() -> str:
    """The id of the current request, always the same one."""
    if "anthropic_request_id" not in g:
        g.anthropic_request_id = "req_" + secrets.token_hex(12)
    return str(g.anthropic_request_id)


def error_object(status: int, text: str, request: str) -> dict[str, Any]:
    """Anthropic's shape of an error; `request` is the request's id."""
    kind = _TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": request}


def marked(response: Response) -> Response:
    """With the request's id in the header that Anthropic's clients look at."""
    response.headers["request-id"] = request_id()
    return response


def refusal(status: int, text: str) -> Response:
    """An error as an answer."""
    return marked(json_reply(error_object(status, text, request_id()), status))
