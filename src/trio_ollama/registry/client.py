"""Requests to one registry for one transfer: signed in when it asks for that, and nothing left open afterwards."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Final
from urllib.parse import urljoin, urlsplit

import trio

from trio_ollama import OLLAMA_API_VERSION, __version__

from .advice import advised
from .challenge import Challenge, read_token
from .connection import Connection
from .errors import ConnectionFailedError, RegistryError
from .keys import Keys
from .limits import Limits
from .reference import Reference, origin
from .response import Response

__all__ = ["Client", "redirect"]

REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
MOST_REDIRECTS: Final = 10
LARGEST_TOKEN: Final = 1 << 20
USER_AGENT: Final = (
    f"ollama/{OLLAMA_API_VERSION} ({platform.machine()} {platform.system().lower()}) trio-ollama/{__version__}"
)

MakeContent = bytes | Callable[[], AsyncIterable[bytes]]
"""The body of a request, or what makes it, anew for each attempt."""


class Client:
    """A context manager. All methods raise ConnectionFailedError and RegistryError.

    A connection whose answer was read to its end serves a later request to the same server.
    """

    def __init__(self, reference: Reference, keys: Keys, limits: Limits) -> None:
        self.reference = reference
        self._keys = keys
        self._limits = limits
        self._token = ""
        self._signing_in = trio.Lock()
        self._idle: list[tuple[object, Connection]] = []
        """Each with the server that it leads to; never more than requests were under way at once."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    @contextlib.asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: MakeContent = b"",
        *,
        patience: float | None = None,
    ) -> AsyncIterator[Response]:
        """Send a request; inside the context its answer, whatever its status, with the body yet to be read.

        A 401 of the registry's own is answered by signing in, once. Redirects are for the caller or for `follow`.
        `patience`: seconds that the answer may take, where that is not the usual.
        """
        own = self.reference.owns(url)
        used = self._token
        async with self._send(method, url, headers or {}, content, used if own else "", patience) as response:
            if response.status != 401 or not own:
                yield response
                return
            challenge = response.headers.get("www-authenticate", "")
        token = await self._sign_in(challenge, url, used)
        async with self._send(method, url, headers or {}, content, token, patience) as response:
            if response.status == 401:
                raise RegistryError("unauthorized: access denied")
            yield response

    @contextlib.asynccontextmanager
    async def follow(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: MakeContent = b"",
        *,
        patience: float | None = None,
        where: Callable[[str], bool] = lambda _: True,
    ) -> AsyncIterator[tuple[Response, str]]:
        """As `open`, and the same request wherever redirects lead to a URL of which `where` holds.

        Inside the context the answer, and the URL that it comes from. No other host gets what signs us in.
        """
        for _ in range(MOST_REDIRECTS + 1):
            async with self.open(method, url, headers, content, patience=patience) as response:
                target = redirect(response, url)
                if not target or not where(target):
                    yield response, url
                    return
            url = target
        raise RegistryError(f"more than {MOST_REDIRECTS} redirects, the last to {url}")

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: MakeContent,
        token: str,
        patience: float | None = None,
    ) -> AsyncIterator[Response]:
        fields = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **headers}
        if token:
            fields["Authorization"] = f"Bearer {token}"
        where = origin(url)
        connection = self._take(where)
        if connection is None:
            try:
                connection = await Connection.open(url, direct=self.reference.local, limit=self._limits.stall)
            except ConnectionFailedError as error:
                raise advised(error) from error
        try:
            yield await connection.request(
                method,
                url,
                fields,
                content() if callable(content) else content,
                stall=self._limits.stall,
                patience=patience or self._limits.stall,
            )
        finally:
            if connection.reusable:
                self._idle.append((where, connection))
            else:
                connection.close()

    def _take(self, where: object) -> Connection | None:
        """An idle connection to this server, if there is one that still stands."""
        for entry in [entry for entry in self._idle if entry[0] == where]:
            self._idle.remove(entry)
            if entry[1].reusable:
                return entry[1]
            entry[1].close()
        return None

    async def _sign_in(self, header: str, url: str, used: str) -> str:
        """A token in the place of the `used` one; many requests that are refused at once ask for one together."""
        async with self._signing_in:
            if self._token == used:
                address = Challenge.parse(header, url).url()
                signature = await trio.to_thread.run_sync(self._keys.sign, Challenge.signed_text(address))
                async with self._send("GET", address, {"Authorization": signature}, b"", "") as response:
                    await response.check()
                    self._token = read_token(await response.read(LARGEST_TOKEN))
            return self._token


def redirect(response: Response, url: str) -> str:
    """Where an answer to a request for `url` sends us; empty if nowhere. Raises RegistryError for a strange place."""
    location = response.headers.get("location", "")
    if response.status not in REDIRECTS or not location:
        return ""
    target = urljoin(url, location)
    if urlsplit(target).scheme not in ("http", "https"):
        raise RegistryError(f"the registry redirects to {target!r}")
    return target
