"""Routes of our own: GET /api/requests, who waits for what, and DELETE /api/requests/<id>, which ends a request."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import trio
from quart import Response

from trio_ollama.scheduler import FOREVER, RequestView
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.stages import Stage
from trio_ollama.server.errors import ApiError
from trio_ollama.server.live import LiveRequest, dialect
from trio_ollama.server.replies import json_reply
from trio_ollama.server.services import Services, services

__all__ = ["CanceledRequests", "LiveEntry", "RequestList", "Waiting", "cancel_request", "list_requests"]

logger = logging.getLogger(__name__)

NEVER: Final = -1.0
"""`keep_alive` of a model that is to stay for ever, as requests say it."""


class Waiting(msgspec.Struct):
    """What a request waits for, and why."""

    because: str
    since: datetime
    seconds: float
    position: int | None = None
    """Its place among all that wait for a runner, or among those that wait for a slot of theirs; from 1."""
    request: str = ""
    """The id of the request it stands behind."""
    generation: int | None = None
    """Of the runner it waits for."""
    model: str = ""
    """That runner's."""
    resource: str = ""
    """The device where memory is short for it, or `models`: too many are loaded."""
    short: int = 0
    """By so many bytes; of `models`, by so many."""


class Progress(msgspec.Struct):
    """Tokens of the prompt: all, and those that were read or were in the cache."""

    total: int
    processed: int


class LiveEntry(msgspec.Struct):
    """A request that is being served."""

    id: str
    method: str
    path: str
    dialect: str
    """`ollama`, `openai` or `anthropic`."""
    client: str
    """Address and port."""
    model: str
    """Empty until the request has been read."""
    stage: str
    """`reading`, `measuring`, `queued`, `waiting for drain`, `waiting for load`, `waiting for slot`, `running`,
    `prefill`, `generating`, `sending` or `canceled`."""
    arrived_at: datetime
    seconds: float
    """Since then."""
    keep_alive: float | None
    """Seconds that it wants the model to stay, -1 for ever; null: it does not say."""
    number: int
    """Its number in the scheduler's log; 0: none yet."""
    generation: int | None
    """Of the runner that it uses."""
    waiting: Waiting | None
    tokens: int
    """Of its answer, so far."""
    prompt: Progress | None
    """As far as the runner has told."""


class RequestList(msgspec.Struct):
    """The requests that are being served, in order of arrival."""

    requests: list[LiveEntry]


class CanceledRequests(msgspec.Struct):
    """What was cancelled, as it was."""

    canceled: list[LiveEntry]


async def list_requests() -> Response:
    """GET /api/requests: who waits for what, and how far everybody is. Waits for nothing."""
    at = services()
    return json_reply(RequestList(_entries(at, at.requests)))


async def cancel_request(id: str) -> Response:
    """DELETE /api/requests/<id>: end a request; its client is told so."""
    at = services()
    found = [live for live in at.requests if live.id == id]
    if not found:
        raise ApiError(404, f"request '{id}' not found")
    answer = CanceledRequests(_entries(at, found))
    for live, entry in zip(found, answer.canceled, strict=True):
        logger.info("%s is canceled: %s of %s, %s", live.id, live.path, live.client, entry.stage)
        live.cancel()
    return json_reply(answer)


def _entries(at: Services, lives: Iterable[LiveRequest]) -> list[LiveEntry]:
    views = {view.asker: view for view in at.scheduler.requests()}
    ids = {view.seq: view.asker.id for view in views.values() if isinstance(view.asker, LiveRequest)}
    return [_entry(live, views.get(live), ids) for live in lives]


def _entry(live: LiveRequest, view: RequestView | None, ids: dict[int, str]) -> LiveEntry:
    answer = live.answer
    return LiveEntry(
        id=live.id,
        method=live.method,
        path=live.path,
        dialect=dialect(live.path),
        client=live.client,
        model=live.demand.model.name if live.demand is not None else "",
        stage=_stage(live, view),
        arrived_at=live.at,
        seconds=_short(trio.current_time() - live.arrived),
        keep_alive=_seconds(live.demand.keep_alive) if live.demand is not None else None,
        number=view.seq if view is not None else live.lease.seq if live.lease is not None else 0,
        generation=view.gen if view is not None else None,
        waiting=_waiting(live, view, ids) if view is not None and view.stage is not Stage.RUNNING else None,
        tokens=answer.tokens if answer is not None else 0,
        prompt=Progress(answer.prompt_tokens, answer.prompt_done) if answer and answer.prompt_tokens else None,
    )


def _stage(live: LiveRequest, view: RequestView | None) -> str:
    if live.canceled:
        return "canceled"
    if view is None:
        return "reading" if live.demand is None else "sending"
    if view.because is Because.MEASURING:
        return "measuring"
    if view.stage is not Stage.RUNNING or live.answer is None:
        return view.stage.value
    return "generating" if live.answer.tokens else "prefill"


def _waiting(live: LiveRequest, view: RequestView, ids: dict[int, str]) -> Waiting:
    seconds = trio.current_time() - (view.since / 1e9 if view.since else live.arrived)
    waiting = Waiting(
        because=view.because.value if view.because is not None else "its runner has no slot free",
        since=datetime.now(UTC) - timedelta(seconds=seconds),
        seconds=_short(seconds),
        position=view.position,
        resource=view.resource,
        short=view.short,
    )
    if view.behind_a_request:
        waiting.request = ids.get(view.by or 0, "")
    else:
        waiting.generation, waiting.model = view.by or view.gen, view.of_model
    return waiting


def _seconds(keep_alive: int | None) -> float | None:
    if keep_alive is None:
        return None
    return NEVER if keep_alive >= FOREVER or keep_alive < 0 else keep_alive / 1e9


def _short(seconds: float) -> float:
    return round(max(seconds, 0.0), 3)
