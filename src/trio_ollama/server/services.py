"""What the routes work with: one object per application, found through the application that serves the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

import trio
from quart import Quart, current_app

from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.store import Store
from trio_ollama.registry import Registry
from trio_ollama.scheduler import Scheduler
from trio_ollama.server.live import LiveRequests
from trio_ollama.server.record import Recorder
from trio_ollama.server.targets import TargetCache
from trio_ollama.settings import Settings

__all__ = ["STORE_THREADS", "Services", "services", "services_of"]

STORE_THREADS: Final = 8
"""Threads that may work on the store at once; further requests wait for their turn, cancellably."""

_KEY: Final = "trio_ollama"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of the daemon that requests use."""

    settings: Settings
    scheduler: Scheduler
    store: Store
    metadata: MetadataCache
    default_context: int
    """Tokens of context where neither request, model nor environment say; chosen by the machine's VRAM."""
    registry: Registry
    recorder: Recorder | None = None
    targets: TargetCache = field(default_factory=TargetCache)
    requests: LiveRequests = field(default_factory=LiveRequests)
    threads: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(STORE_THREADS))

    async def in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Do blocking store work off the event loop. A thread that has begun is awaited, also when cancelled."""
        return await trio.to_thread.run_sync(work, *arguments, limiter=self.threads)

    def attach(self, app: Quart) -> None:
        """Let the routes of `app` find this object."""
        app.extensions[_KEY] = self


def services() -> Services:
    """The services of the application that handles the current request."""
    return services_of(current_app)


def services_of(app: Quart) -> Services:
    """The services of an application."""
    return cast(Services, app.extensions[_KEY])
