"""Where the bytes of a blob lie: at the registry, or where it sends us."""

from __future__ import annotations

import re
from typing import Final

import trio

from trio_ollama.models.digest import Digest

from .client import Client, redirect
from .errors import RangesIgnoredError, RegistryError
from .limits import Limits
from .response import Response
from .retry import repeat

__all__ = ["Place", "range_of"]

_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Place:
    """The address of one blob, looked for once for all of its parts, and again when it has grown old."""

    def __init__(self, client: Client, digest: Digest, size: int, limits: Limits) -> None:
        self.known = client.reference.blob(digest)
        """The best address known: at first, the registry's own."""
        self._client = client
        self._digest = digest
        self._size = size
        self._limits = limits
        self._found = False
        self._looking = trio.Lock()

    async def url(self) -> str:
        """Where parts can be fetched.

        Raises RegistryError; RangesIgnoredError if all of the blob is sent there, whatever is asked for.
        """
        async with self._looking:
            if not self._found:
                await repeat(f"looking for {self._digest}", self._ask, self._limits.locating, self._limits)
            return self.known

    def forget(self) -> None:
        """It was refused there: an address with a signature in it grows old, and the registry knows a new one."""
        self._found = False
        self.known = self._client.reference.blob(self._digest)

    async def _ask(self) -> None:
        """One attempt: ask for one byte. Redirects that stay at the registry are followed."""
        reference = self._client.reference
        asked = self._client.follow("GET", reference.blob(self._digest), {"Range": "bytes=0-0"}, where=reference.owns)
        async with asked as (response, url):
            if target := redirect(response, url):
                self.known, self._found = target, True
                return
            await response.check()
            self._check_size(response)
            self.known = url  # not every registry sends us elsewhere: the bytes are right here
            if response.status != 206:
                raise RangesIgnoredError("the registry knows no ranges")
            self._found = True

    def _check_size(self, response: Response) -> None:
        size = range_of(response)[1] if response.status == 206 else response.length
        if size not in (None, self._size):
            raise RegistryError(f"{self._digest} has {size} bytes, its manifest says {self._size}")


def range_of(response: Response) -> tuple[int | None, int | None]:
    """The first byte that an answer has, and the size of the whole, as far as its head tells."""
    told = _RANGE.fullmatch(response.headers.get("content-range", ""))
    if told is None:
        return None, None
    return int(told[1]), int(told[2]) if told[2] != "*" else None
