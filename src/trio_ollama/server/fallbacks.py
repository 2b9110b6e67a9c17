"""What a client gets where no route answers: unknown paths, wrong methods, trailing slashes, unusable bodies, bugs."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote

from quart import Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from .asgi import App, empty_response
from .body import BodyError

__all__ = ["install_fallbacks"]

TEXTS: Final = {404: "404 page not found", 405: "405 method not allowed"}


def install_fallbacks(app: App) -> None:
    """Give `app` the answers of this module. Handlers that a blueprint registers for itself come first.

    Call it before `install_guards`: upstream redirects before it looks at origins.
    """

    async def redirect_trailing_slash() -> Response | None:
        path = request.path
        if not isinstance(request.routing_exception, NotFound) or path == "/" or not path.endswith("/"):
            return None
        adapter = app.create_url_adapter(request)
        if not adapter.test(path[:-1], request.method):
            return None
        location = quote(path[:-1])
        if query := request.query_string.decode("latin1"):
            location += f"?{query}"
        return empty_response(301 if request.method == "GET" else 307, {"Location": location})

    async def refuse(error: HTTPException) -> Response:
        status = error.code or 500
        if status in TEXTS:
            response = Response(TEXTS[status], status=status, content_type="text/plain")
        elif status >= 500:
            response = empty_response(status)  # the log has the reason
        else:
            text = json.dumps({"error": error.description or ""})
            response = Response(text, status=status, content_type="application/json; charset=utf-8")
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
        return response

    async def refuse_body(error: BodyError) -> Response:
        text = json.dumps({"error": str(error)})
        return Response(text, status=error.status, content_type="application/json; charset=utf-8")

    app.before_request(redirect_trailing_slash)
    app.register_error_handler(HTTPException, refuse)
    app.register_error_handler(BodyError, refuse_body)
