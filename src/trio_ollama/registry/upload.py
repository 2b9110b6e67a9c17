"""One blob on its way to a registry.

A registry takes the parts in one of two ways, which its answer to the first tells: in order, each answer naming the
address of the next (Docker's); or each at an address of its own that it redirects to, so that they can go in
parallel (Ollama's). What an interrupted upload of the first kind has brought, the registry is asked.

Other redirects are followed as they are: a registry that has moved, or one behind a server that shares out the load.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urljoin, urlsplit

import trio

from trio_ollama.models.blobs import Blobs
from trio_ollama.models.errors import BlobNotFoundError, InvalidNameError
from trio_ollama.models.files import store_errors
from trio_ollama.models.manifest import Layer
from trio_ollama.models.names import ModelName

from .client import Client, redirect
from .errors import AnswerError, RegistryError
from .limits import Limits
from .part_body import PartBody
from .parts import Part, plan
from .response import Response
from .retry import persist, repeat
from .transfer import Progress, Tell

__all__ = ["Upload"]

WANTED: Final = 16
"""Parts of one blob, as far as their sizes allow."""

CHECKING: Final = 600.0
"""Seconds that a registry may take to check a blob that is whole: some read all of it."""

_RANGE: Final = re.compile(r"(?:bytes[= ])?0-(\d+)")


class Upload:
    """Brings one layer's blob to the registry; `run` is its life."""

    def __init__(self, blobs: Blobs, client: Client, layer: Layer, limits: Limits, tell: Tell) -> None:
        self._client = client
        self._layer = layer
        self._digest = layer.parsed_digest
        self._path: Path = blobs.path(self._digest)
        self._limits = limits
        self._tell = tell
        self._told = 0.0
        self._total = 0
        self._parts: list[Part] = []
        self._session = ""
        """Where the next part is sent."""
        self._sure = True
        """The registry has what `_parts` says, no more and no less."""
        self._most_taken = 0
        """Bytes that the registry has had, at the best."""
        self._redirects = False
        self._bodies: dict[int, PartBody] = {}
        """Of the parts, for their MD5: a registry's storage may make a check of its own of them."""

    async def run(self) -> None:
        """Bring it there, unless it is there. Raises RegistryError, BlobNotFoundError, StoreUnavailableError."""
        self._total = await trio.to_thread.run_sync(self._size)
        if not await self._exists() and not await self._begin():
            if self._total:
                await self._send()
            await repeat(f"the end of {self._digest}", self._finish, self._limits.asking, self._limits)
        self._tell_progress(self._total)

    def _size(self) -> int:
        with store_errors("read the model store"):
            try:
                return self._path.stat().st_size
            except FileNotFoundError:
                raise BlobNotFoundError(str(self._digest)) from None

    async def _exists(self) -> bool:
        """Whether the registry has the blob."""
        found = False

        async def ask() -> None:
            nonlocal found
            url = self._client.reference.blob(self._digest)
            async with self._client.follow("HEAD", url) as (response, where):
                # An address elsewhere may be signed for GET alone: it is refused to us, but the blob is there.
                found = response.status == 200 or (where != url and response.status in (403, 405))
                if response.status != 404 and not found:
                    await response.check()

        await repeat(self._digest, ask, self._limits.asking, self._limits)
        return found

    async def _begin(self) -> bool:
        """Open a session of upload; True if the registry took the blob from another of its models instead."""
        mounted = False

        async def ask() -> None:
            nonlocal mounted
            mounted = await self._open_session(self._mount())

        await repeat(self._digest, ask, self._limits.asking, self._limits)
        self._parts = plan(self._total, self._limits.upload_part, WANTED)
        return mounted

    async def _open_session(self, query: Mapping[str, str] | None = None) -> bool:
        url = self._client.reference.uploads + (f"?{urlencode(query)}" if query else "")
        async with self._client.follow("POST", url) as (response, where):
            await response.check()
            mounted = response.status == 201 and bool(query)
            if not mounted:
                self._session = _next(response, where)
            return mounted

    def _mount(self) -> dict[str, str]:
        """Where the registry may have the blob already: at the model that the layer came from."""
        try:
            source = ModelName.parse(self._layer.source)
        except InvalidNameError:
            return {}
        if source.host.lower() != self._client.reference.name.host.lower():
            return {}
        return {"mount": str(self._digest), "from": f"{source.namespace}/{source.model}"}

    # The parts

    async def _send(self) -> None:
        """All parts, in the way that the registry wants."""
        while part := next((part for part in self._parts if part.left), None):
            if self._redirects:
                await self._send_parallel()
            else:
                await persist(f"part {part.number} of {self._digest}", self._send_next, self._taken, self._limits)

    def _taken(self) -> int:
        return self._most_taken

    async def _send_next(self) -> None:
        """The first part that is not there, from where it is not."""
        if not self._sure:
            await self._ask_where()
        part = next((part for part in self._parts if part.left), None)
        if part is None:
            return
        self._sure = False
        if target := await self._patch(part):
            self._redirects = True
            await self._put(target, part)
        self._sure = True
        part.completed = part.size
        self._most_taken = max(self._most_taken, part.end)

    async def _ask_where(self) -> None:
        """How much an interrupted upload has brought; a new one if the registry does not know."""
        taken = 0
        try:
            async with self._client.follow("GET", self._session) as (response, where):
                await response.check()
                # `0-0` is said of one byte and of none.
                if (said := _RANGE.fullmatch(response.headers.get("range", ""))) is not None and int(said[1]):
                    taken = int(said[1]) + 1
                    self._session = _next(response, where)
        except AnswerError as error:
            if error.passing:
                raise
        if not taken:
            await self._open_session()
        self._most_taken = max(self._most_taken, taken)
        for part in self._parts:
            part.completed = max(0, min(taken - part.offset, part.size))
        self._sure = True

    async def _send_parallel(self) -> None:
        """All that are left, each where it is redirected to; the first one's failure ends all."""
        failures: list[Exception] = []
        slots = trio.Semaphore(self._limits.parallel)

        async def send(part: Part) -> None:
            try:
                await persist(
                    f"part {part.number} of {self._digest}", partial(self._redirect, part), lambda: 0, self._limits
                )
                part.completed = part.size
            except Exception as error:
                failures.append(error)
                nursery.cancel_scope.cancel("failed")
            finally:
                slots.release()

        async with trio.open_nursery() as nursery:
            for part in self._parts:
                if part.left:
                    await slots.acquire()
                    nursery.start_soon(send, part, name=f"part {part.number}")
        if failures:
            raise failures[0]

    async def _redirect(self, part: Part) -> None:
        part.completed = 0
        target = await self._patch(part)
        if not target:
            raise RegistryError("the registry redirects some parts and others not")
        await self._put(target, part)

    async def _patch(self, part: Part) -> str:
        """Send what is left of a part to the session; returns where it is to be sent instead, if that is so."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(part.left),
            "Content-Range": f"{part.position}-{part.end - 1}",
            "X-Redirect-Uploads": "1",
        }
        content = partial(self._content, part, part.completed)
        sent = self._client.follow("PATCH", self._session, headers, content, where=_takes_patches)
        async with sent as (response, where):
            if target := redirect(response, where):
                part.completed = 0
                return target
            await response.check()
            self._session = _next(response, where)
            return ""

    async def _put(self, url: str, part: Part) -> None:
        """Send a part where the registry wants it."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(part.left)}
        content = partial(self._content, part, part.completed)
        async with self._client.follow("PUT", url, headers, content) as (response, _):
            await response.check()

    def _content(self, part: Part, completed: int) -> PartBody:
        part.completed = completed  # whoever asked us to sign in, or sent us elsewhere, may have read some of it
        self._bodies[part.number] = body = PartBody(self._path, part, self._report)
        return body

    # The end

    async def _finish(self) -> None:
        """Let the registry check the whole, and give it its name."""
        if not self._sure and await self._exists():
            return
        self._sure = False
        digests = b"".join(self._bodies[number].digest for number in sorted(self._bodies))
        etag = hashlib.md5(digests, usedforsecurity=False)
        query = urlencode({"digest": str(self._digest), "etag": f"{etag.hexdigest()}-{len(self._parts)}"})
        url = f"{self._session}{'&' if '?' in self._session else '?'}{query}"
        async with self._client.follow("PUT", url, patience=CHECKING) as (response, _):
            await response.check()

    def _report(self) -> None:
        """Now and then, of what is sent."""
        if trio.current_time() - self._told >= self._limits.tick:
            self._told = trio.current_time()
            self._tell_progress(sum(part.completed for part in self._parts))

    def _tell_progress(self, completed: int) -> None:
        self._tell(Progress(f"pushing {self._digest.hex[:12]}", str(self._digest), self._total, completed))


def _takes_patches(url: str) -> bool:
    """Whether it is a registry's address of an upload, and not one of a storage that the part is to be put to."""
    return "/blobs/uploads/" in urlsplit(url).path


def _next(response: Response, url: str) -> str:
    """Where an answer says that the upload goes on."""
    location = response.headers.get("docker-upload-location") or response.headers.get("location", "")
    if not location:
        raise RegistryError("the registry does not say where the upload goes on")
    return urljoin(url, location)
