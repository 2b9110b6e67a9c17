"""Errors in Anthropic's shape, and the id of a request, which stands in the answer's head and in an error."""

from __future__ import annotations

from typing import Any, Final

from quart import Response

from trio_ollama.server.live import new_id, peek
from trio_ollama.server.replies import json_reply

__all__ = ["error_object", "marked", "refusal", "request_id"]

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def request_id() -> str:
    """The id of the current request: the one that all dialects have, under Anthropic's name."""
    live = peek()
    return live.id if live is not None else new_id()


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
