"""The small routes: is it up, which version, what is loaded."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

from quart import Response

from trio_ollama import OLLAMA_API_VERSION, __version__
from trio_ollama.durations import FOREVER
from trio_ollama.models.details import details
from trio_ollama.models.errors import ModelsError
from trio_ollama.scheduler import RunnerView
from trio_ollama.server.replies import json_reply, local_stamp, text_reply
from trio_ollama.server.services import Services, services

__all__ = ["expires_at", "ps", "root", "status", "version"]


async def root() -> Response:
    """What clients knock at."""
    return text_reply("Ollama is running")


async def version() -> Response:
    """GET /api/version."""
    return json_reply({"version": OLLAMA_API_VERSION, "trio_ollama": __version__})


async def status() -> Response:
    """GET /api/status: there is no cloud here."""
    return json_reply({"cloud": {"disabled": True, "source": "config"}})


async def ps() -> Response:
    """GET /api/ps: the loaded models, the one that stays longest first. Waits for no runner."""
    at = services()
    views = sorted(at.scheduler.snapshot(), key=lambda view: view.expires_in, reverse=True)
    now = datetime.now(UTC)
    return json_reply({"models": await at.in_thread(_entries, at, views, now)})


def _entries(at: Services, views: list[RunnerView], now: datetime) -> list[dict[str, Any]]:
    return [_entry(at, view, now) for view in views]


def _entry(at: Services, view: RunnerView, now: datetime) -> dict[str, Any]:
    # Deleted while loaded: it is listed until its runner is gone (R30).
    digest, about = "", {}
    with contextlib.suppress(ModelsError):
        model = at.store.resolve(view.name)
        digest, about = model.digest, details(model)
    return {
        "name": view.name,
        "model": view.name,
        "size": view.total_bytes,
        "digest": digest,
        "details": about,
        "expires_at": local_stamp(expires_at(view, now)),
        "size_vram": view.gpu_bytes,
        "context_length": view.context,
    }


def expires_at(view: RunnerView, now: datetime) -> datetime:
    """R28: never in the past unless the runner is on its way out; "never" is some 292 years ahead."""
    if view.draining:
        return now - timedelta(microseconds=1)
    return now + timedelta(microseconds=min(max(view.expires_in, 0), FOREVER) // 1000)
