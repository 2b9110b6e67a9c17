"""One blob on its way into the store: its parts in parallel, its check, its name.

What goes wrong on the way is tried again, for as long as attempts bring anything at all: a part is given up after
several attempts in a row that did not. Every wait is a checkpoint, so a cancel takes effect at once, wherever it
comes; what was fetched stays, and the next download goes on from there.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import trio

from trio_ollama.models.blobs import Blobs
from trio_ollama.models.manifest import Layer

from .client import Client
from .errors import AnswerError, ConnectionFailedError, DownloadCorruptError, RangesIgnoredError
from .keys import Keys
from .limits import Limits
from .partial import Partial
from .parts import Part
from .place import Place, range_of
from .pump import Sink
from .reference import Reference
from .response import Response
from .retry import persist
from .verify import Verifier

__all__ = ["Download"]

logger = logging.getLogger(__name__)


class Download:
    """Fetches one layer's blob; `run` is its life."""

    def __init__(self, blobs: Blobs, reference: Reference, layer: Layer, keys: Keys, limits: Limits) -> None:
        self.total = layer.size
        self._blobs = blobs
        self._digest = layer.parsed_digest
        self._client = Client(reference, keys, limits)
        self._place = Place(self._client, self._digest, layer.size, limits)
        self._limits = limits
        self._partial: Partial | None = None
        self._threads = trio.CapacityLimiter(limits.parallel)
        self._verifier: Verifier | None = None
        self._failure: Exception | None = None

    @property
    def completed(self) -> int:
        """Bytes that are there."""
        return sum(part.size - part.left for part in self._partial.parts) if self._partial is not None else 0

    async def run(self) -> None:
        """Fetch the blob. Raises RegistryError and StoreUnavailableError."""
        partial = await self._open()
        if partial is None:
            return
        try:
            await trio.to_thread.run_sync(partial.resume, self.total)
            self._partial = partial
            async with self._client:
                got = await self._fetch(partial)
            if got != self._digest.hex:
                await trio.to_thread.run_sync(partial.discard)
                raise DownloadCorruptError(str(self._digest), f"sha256:{got}")
            await trio.to_thread.run_sync(partial.commit)
        finally:
            partial.close()  # a few short writes; in a thread they could not be done when cancelled

    async def _open(self) -> Partial | None:
        """The partial file, once no other daemon has it; None if that daemon has fetched the blob."""
        while True:
            partial, fetched = await trio.to_thread.run_sync(self._claim)
            if partial is not None or fetched:
                return partial
            await trio.sleep(self._limits.lock_poll)

    def _claim(self) -> tuple[Partial | None, bool]:
        partial = Partial.open(self._blobs, self._digest, self._limits)
        fetched = self._blobs.size(self._digest) == self.total
        if partial is not None and fetched:
            partial.discard()
            partial.close()
            partial = None
        return partial, fetched

    async def _fetch(self, partial: Partial) -> str:
        """All bytes that are missing, and the digest of all; hashed on the way."""
        self._verifier = verifier = Verifier(partial, self.total, trio.CapacityLimiter(1))
        result = ""

        async def verify() -> None:
            nonlocal result
            result = await verifier.run()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guard, nursery, verify, name="hash")
            nursery.start_soon(self._guard, nursery, verifier.sync, name="sync")
            await self._guard(nursery, self._fetch_bytes, partial)
        if self._failure is not None:
            raise self._failure
        return result

    async def _fetch_bytes(self, partial: Partial) -> None:
        if not any(part.left for part in partial.parts):
            return
        try:
            await self._place.url()
            await self._fetch_parts(partial)
        except RangesIgnoredError as error:
            logger.info("%s is fetched in one piece: %s", self._digest, error)
            await self._fetch_whole(partial)

    async def _fetch_parts(self, partial: Partial) -> None:
        """All parts, in order, over so many connections as bring more; the first failure ends all."""
        waiting, begun = deque(part for part in partial.parts if part.left), trio.Event()
        async with trio.open_nursery() as nursery:
            for number in range(self._limits.parallel):
                nursery.start_soon(
                    self._guard, nursery, self._fetch_waiting, partial, waiting, begun, name=f"parts {number}"
                )
                await self._room(begun)
                if begun.is_set():
                    break
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _fetch_waiting(self, partial: Partial, waiting: deque[Part], begun: trio.Event) -> None:
        """One connection's work: part after part, until all are `begun`."""
        while waiting:
            await self._fetch_part(partial, waiting.popleft())
        begun.set()

    async def _fetch_part(self, partial: Partial, part: Part) -> None:
        name = f"part {part.number} of {self._digest}"
        await persist(name, lambda: self._attempt(partial, part), lambda: part.completed, self._limits)

    async def _room(self, begun: trio.Event) -> None:
        """Wait until another connection may bring more: until less comes than half of what could be checked.

        A neighbour brings that over one connection, and more of them would only take time from the check. Once all
        parts are `begun`, there is nothing more to bring.
        """
        assert self._verifier is not None
        while not begun.is_set():
            before = self.completed
            with trio.move_on_after(self._limits.opening):
                await begun.wait()
            if self.completed - before < self._verifier.speed * self._limits.opening / 2:
                return

    async def _fetch_whole(self, partial: Partial) -> None:
        """From a server without ranges: one stream from the first byte on."""
        await persist(self._digest, lambda: self._stream(partial), lambda: self.completed, self._limits)

    async def _attempt(self, partial: Partial, part: Part) -> None:
        """Fetch what is left of a part with one request."""
        place, first, last = await self._place.url(), part.position, part.end - 1
        async with self._client.open("GET", place, {"Range": f"bytes={first}-{last}"}) as response:
            await self._check(response)
            if response.status == 200:
                raise RangesIgnoredError("a part was asked for, and all is sent")
            if response.status != 206 or range_of(response)[0] != first:
                raise ConnectionFailedError(f"not the part that was asked for: status {response.status}")
            await self._take(response, part.left, lambda view: partial.write(part, view))

    async def _stream(self, partial: Partial) -> None:
        """Fetch all of the blob with one request."""
        at = 0

        def write(view: memoryview) -> None:
            nonlocal at
            partial.write_at(at, view)
            at += len(view)

        async with self._client.open("GET", self._place.known) as response:
            await self._check(response)
            await self._take(response, self.total, write)

    async def _check(self, response: Response) -> None:
        try:
            await response.check()
        except AnswerError:
            self._place.forget()
            raise

    async def _take(self, response: Response, length: int, write: Sink) -> None:
        """Write what comes, `length` bytes."""
        assert self._verifier is not None
        await response.pour(length, write, self._limits.piece, self._threads)
        self._verifier.advance()

    # Failures

    async def _guard(self, nursery: trio.Nursery, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """One of several tasks: its failure is that of all, and is told as it is, in no group."""
        try:
            await work(*arguments)
        except Exception as error:
            self._fail(nursery, error)

    def _fail(self, nursery: trio.Nursery, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        nursery.cancel_scope.cancel("failed")
