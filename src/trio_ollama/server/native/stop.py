"""A route of our own: POST /api/stop, which unloads a model, in good order or at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import msgspec
from quart import Response

from trio_ollama.scheduler import RunnerView
from trio_ollama.server.lookup import Words, find_target
from trio_ollama.server.replies import json_reply, read
from trio_ollama.server.services import services

__all__ = ["StopAnswer", "StopRequest", "Stopped", "stop"]

logger = logging.getLogger(__name__)


class StopRequest(msgspec.Struct):
    """The body of /api/stop. `drain`: nobody new gets the model, and it goes when its requests are done. `force`: its
    process ends now, and its requests get an error."""

    model: str = ""
    name: str = ""
    mode: Literal["drain", "force"] = "drain"


class Stopped(msgspec.Struct):
    """A runner, as it was when it was stopped."""

    generation: int
    state: str
    pid: int | None
    requests: int
    """That used it, or waited for a slot of it."""


class StopAnswer(msgspec.Struct):
    """What was stopped; nothing, if the model was not loaded."""

    model: str
    mode: str
    stopped: list[Stopped]
    message: str
    """The same for people."""


async def stop() -> Response:
    """POST /api/stop: unload a model, after its requests or instead of them."""
    at = services()
    body = await read(StopRequest, at.settings.max_body)
    given = body.model or body.name
    key = (await find_target(at, given, Words())).facts.key
    if body.mode == "force":
        views = at.scheduler.force_stop(key)
    else:
        views = at.scheduler.runners_of(key)
        at.scheduler.stop(key)
    message = _message(given, body.mode, views)
    logger.info("%s", message)
    stopped = [Stopped(view.gen, view.state, view.pid, view.leases) for view in views]
    return json_reply(StopAnswer(given, body.mode, stopped, message))


def _message(given: str, mode: str, views: Sequence[RunnerView]) -> str:
    if not views:
        return f"{given} is not loaded"
    requests = sum(view.leases for view in views)
    if mode == "force":
        return f"{given} is stopped; requests that get an error for it: {requests}"
    return f"{given} takes no more requests, and goes when those it has are done: {requests}"
