"""The application: every route, and what stands round all of them."""

from __future__ import annotations

import ipaddress
from typing import Final

from quart import Response, request

from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.store import Store
from trio_ollama.registry import Registry
from trio_ollama.scheduler import Scheduler
from trio_ollama.server import anthropic, native, openai
from trio_ollama.server.anthropic.errors import refusal as anthropic_refusal
from trio_ollama.server.asgi import App
from trio_ollama.server.body import BodyError
from trio_ollama.server.errors import describe, worth_retrying
from trio_ollama.server.fallbacks import install_fallbacks
from trio_ollama.server.guards import install_guards
from trio_ollama.server.live import dialect, mark
from trio_ollama.server.openai.encode import error_object
from trio_ollama.server.openapi import document
from trio_ollama.server.record import Recorder
from trio_ollama.server.replies import JSON, json_reply
from trio_ollama.server.routes import Route, cancelable
from trio_ollama.server.services import Services
from trio_ollama.settings import Settings

__all__ = ["DEFAULT_CONTEXT", "ROUTES", "create_app"]

SHOULD_RETRY: Final = "x-should-retry"
"""Of an error that the official clients of OpenAI and Anthropic would otherwise answer with the same request."""

DEFAULT_CONTEXT: Final = 4096
"""Tokens of context on a machine with little or no VRAM."""


def create_app(
    *,
    settings: Settings,
    scheduler: Scheduler,
    store: Store,
    metadata_cache: MetadataCache,
    default_context: int = DEFAULT_CONTEXT,
    loopback: bool | None = None,
    registry: Registry | None = None,
    recorder: Recorder | None = None,
) -> App:
    """The daemon's ASGI application. It starts nothing: scheduler and registry must be running when requests come.

    `loopback`: only this machine can reach the sockets it is served on; None to judge by the settings.
    `recorder` is told of every request for a model.
    """
    app = App("trio_ollama")
    registry = registry or Registry(store, settings.key, prune=not settings.noprune)
    Services(settings, scheduler, store, metadata_cache, default_context, registry, recorder).attach(app)
    for route in ROUTES:
        view, methods = cancelable(route.view) if route.inference else route.view, list(route.methods)
        app.add_url_rule(route.rule, endpoint=f"{'_'.join(methods)} {route.rule}", view_func=view, methods=methods)
    app.after_request(mark)
    install_fallbacks(app)
    install_guards(app, origins=settings.origins, loopback=_loopback(settings) if loopback is None else loopback)
    for kind in (BodyError, Exception):
        app.register_error_handler(kind, refuse)
    return app


async def described() -> Response:
    """GET /openapi.json: this description."""
    return Response(document(ROUTES), content_type=JSON)


ROUTES: Final = (*native.ROUTES, *openai.ROUTES, *anthropic.ROUTES, Route("/openapi.json", ("GET",), described))
"""All there are."""


async def refuse(error: Exception) -> Response:
    """An error as an answer, in the shape that the path's dialect has for it."""
    status, text = describe(error)
    match dialect(request.path):
        case "anthropic":
            answer = anthropic_refusal(status, text)
        case "openai":
            answer = json_reply(error_object(status, text), status)
        case _:
            answer = json_reply({"error": text}, status)
    if not worth_retrying(error):
        answer.headers[SHOULD_RETRY] = "false"
    return answer


def _loopback(settings: Settings) -> bool:
    """True if only this machine can reach the daemon."""
    host = settings.host.host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
