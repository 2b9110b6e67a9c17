"""All transfers of the daemon, in one nursery: the only way to pull and to push."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from trio_ollama.models.store import Store

from .client import Client
from .downloads import Downloads
from .keys import Keys
from .limits import Limits
from .pull import pull
from .push import push
from .reference import Reference
from .transfer import Tell, Transfer

__all__ = ["Registry"]


class Registry:
    """Begins transfers; `run` must be running.

    A transfer is one request's: whoever begins it calls `cancel` when the request ends. The tasks are ours only so
    that they need not wait for the request's reader, and so that downloads can be shared.
    """

    def __init__(self, store: Store, key: Path, *, prune: bool = True, limits: Limits | None = None) -> None:
        """`key` is the private key that signs us in, made when a registry first asks for it."""
        self._store = store
        self._keys = Keys(key)
        self._prune = prune
        self._limits = limits or Limits()
        self._nursery: trio.Nursery | None = None
        self._downloads: Downloads | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Host the transfers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._downloads = Downloads(self._store.blobs, self._keys, self._limits, nursery)
            task_status.started()
            await trio.sleep_forever()

    @property
    def downloads(self) -> Downloads:
        """What is being fetched now."""
        assert self._downloads is not None, "not running"
        return self._downloads

    def pull(self, reference: Reference) -> Transfer:
        """Begin to pull a model."""

        async def work(tell: Tell) -> None:
            async with self._client(reference) as client:
                await pull(self._store, self.downloads, client, self._limits, self._prune, tell)

        return self._begin(f"pull {reference.name}", work)

    def push(self, reference: Reference) -> Transfer:
        """Begin to push a model."""

        async def work(tell: Tell) -> None:
            async with self._client(reference) as client:
                await push(self._store, client, self._limits, tell)

        return self._begin(f"push {reference.name}", work)

    def _client(self, reference: Reference) -> Client:
        return Client(reference, self._keys, self._limits)

    def _begin(self, name: str, work: Callable[[Tell], Awaitable[None]]) -> Transfer:
        assert self._nursery is not None
        transfer = Transfer()
        self._nursery.start_soon(transfer.run, work, name=name)
        return transfer
