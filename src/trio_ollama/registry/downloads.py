"""Downloads by digest: whoever wants a blob that is on its way waits for that, and nothing is fetched twice.

A download belongs to none of those who wait for it - the first of them may leave first, and the others would lose
what is under way. It is a task of the registry's own nursery, as a load is one of the scheduler's: joined by all who
want it, cancelled when nobody waits any more (R04). Nothing here waits between a look and a step, so two cannot begin
the same download.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from trio_ollama.models.blobs import Blobs
from trio_ollama.models.digest import Digest
from trio_ollama.models.manifest import Layer

from .download import Download
from .keys import Keys
from .limits import Limits
from .reference import Reference
from .transfer import Progress, Tell

__all__ = ["Downloads"]


@dataclass(eq=False, slots=True)
class _Shared:
    """A download, and who waits for it."""

    base: str
    """Of the registry that it is fetched from."""
    download: Download
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    waiters: int = 0
    error: Exception | None = None


class Downloads:
    """The downloads of one store, at most one for each digest."""

    def __init__(self, blobs: Blobs, keys: Keys, limits: Limits, nursery: trio.Nursery) -> None:
        self._blobs = blobs
        self._keys = keys
        self._limits = limits
        self._nursery = nursery
        self._running: dict[Digest, _Shared] = {}

    async def fetch(self, reference: Reference, layer: Layer, status: str, tell: Tell) -> None:
        """Have this blob in the store; tells the progress while it is fetched.

        Raises RegistryError, StoreUnavailableError.
        """
        while True:
            shared = self._running.get(layer.parsed_digest)
            if shared is not None and shared.scope.cancel_called:
                await shared.ended.wait()  # its last waiter has just left
                continue
            if shared is None:
                shared = self._begin(reference, layer)
            await self._wait(shared, layer, status, tell)
            if shared.error is None:
                return
            # Another registry's failure to give the blob says nothing of ours.
            if shared.base == reference.base:
                raise shared.error

    def _begin(self, reference: Reference, layer: Layer) -> _Shared:
        shared = _Shared(reference.base, Download(self._blobs, reference, layer, self._keys, self._limits))
        self._running[layer.parsed_digest] = shared
        self._nursery.start_soon(self._run, layer.parsed_digest, shared, name=f"download {layer.digest}")
        return shared

    async def _run(self, digest: Digest, shared: _Shared) -> None:
        try:
            with shared.scope:
                await shared.download.run()
        except Exception as error:
            shared.error = error
        finally:
            del self._running[digest]
            shared.ended.set()

    async def _wait(self, shared: _Shared, layer: Layer, status: str, tell: Tell) -> None:
        shared.waiters += 1
        try:
            while not shared.ended.is_set():
                tell(Progress(status, layer.digest, layer.size, shared.download.completed))
                with trio.move_on_after(self._limits.tick):
                    await shared.ended.wait()
        finally:
            shared.waiters -= 1
            if not shared.waiters:
                shared.scope.cancel("nobody waits for it")
        if shared.error is None:
            tell(Progress(status, layer.digest, layer.size, layer.size))
