"""Requests to one registry for one transfer: signed in when it asks for that, and nothing left open afterwards.

Each transfer has a client of its own: connections that a cancelled request left behind in a pool end with it. The
HTTP library is imported when the first transfer needs it; a daemon that only serves never pays for it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import trio

from trio_ollama import OLLAMA_API_VERSION, __version__

from .challenge import Challenge, read_token
from .errors import AnswerError, ConnectionFailedError, RegistryError
from .keys import Keys
from .limits import Limits
from .reference import Reference

if TYPE_CHECKING:
    import httpx2

__all__ = ["Client", "redirect"]

ERROR_TEXT: Final = 1024
"""Bytes of an error's text that are kept."""
CLOSING: Final = 1.0
"""Seconds that closing a connection may take, also when cancelled."""
REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
USER_AGENT: Final = (
    f"ollama/{OLLAMA_API_VERSION} ({platform.machine()} {platform.system().lower()}) trio-ollama/{__version__}"
)

logger = logging.getLogger(__name__)

Content = bytes | Callable[[], AsyncIterable[bytes]]
"""The body of a request, or what makes it, anew for each attempt."""


class Client:
    """A context manager. All methods raise ConnectionFailedError, AnswerError and RegistryError."""

    def __init__(self, reference: Reference, keys: Keys, limits: Limits) -> None:
        self.reference = reference
        self._keys = keys
        self._limits = limits
        self._token = ""
        self._signing_in = trio.Lock()
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Client:
        self._http = await trio.to_thread.run_sync(_http_client, self.reference.local, self._limits)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._http is not None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING):
            await self._http.aclose()

    @contextlib.asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        *,
        patience: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request; inside the context its answer, whatever its status, with the body yet to be read.

        `patience`: seconds that the answer may take, where that is not the usual.

        A 401 of the registry's own is answered by signing in, once. Redirects are for the caller to follow.
        """
        own = self.reference.owns(url)
        used = self._token
        async with self._send(method, url, headers, content, used if own else "", patience) as response:
            if response.status_code != 401 or not own:
                yield response
                return
            header = response.headers.get("www-authenticate", "")
        token = await self._sign_in(header, url, used)
        async with self._send(method, url, headers, content, token, patience) as response:
            if response.status_code == 401:
                raise RegistryError("unauthorized: access denied")
            yield response

    async def read(self, response: httpx2.Response, limit: int) -> bytes:
        """A small body, whole. Raises RegistryError beyond `limit` bytes."""
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > limit:
                raise RegistryError(f"the registry's answer is larger than {limit} bytes")
        return bytes(data)

    async def check(self, response: httpx2.Response) -> None:
        """Raises AnswerError for an answer that is an error."""
        if response.status_code >= 400:
            said = bytearray()
            async for chunk in response.aiter_bytes():
                said += chunk
                if len(said) >= ERROR_TEXT:
                    break
            raise AnswerError(response.status_code, said[:ERROR_TEXT].decode(errors="replace").strip())

    @contextlib.asynccontextmanager
    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        content: Content | None,
        token: str,
        patience: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        assert self._http is not None
        fields = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        with _failures(url):
            request = self._http.build_request(
                method,
                url,
                headers=fields,
                content=content() if callable(content) else content,
                timeout=patience or self._limits.stall,
            )
            response = await self._http.send(request, stream=True, follow_redirects=False)
            try:
                yield response
            finally:
                # Shielded, or a cancelled request's connection would stay open until the client is closed.
                with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSING):
                    await response.aclose()

    async def _sign_in(self, header: str, url: str, used: str) -> str:
        """A token in the place of the `used` one; many requests that are refused at once ask for one together."""
        async with self._signing_in:
            if self._token == used:
                challenge = Challenge.parse(header, url)
                address = challenge.url()
                signature = await trio.to_thread.run_sync(self._keys.sign, challenge.signed_text(address))
                async with self._send("GET", address, {"Authorization": signature}, None, "") as response:
                    await self.check(response)
                    self._token = read_token(await self.read(response, 1 << 20))
            return self._token


def redirect(response: httpx2.Response, url: str) -> str:
    """Where an answer to a request for `url` sends us; empty if nowhere. Raises RegistryError for a strange place."""
    location = response.headers.get("location", "")
    if response.status_code not in REDIRECTS or not location:
        return ""
    target = urljoin(url, location)
    if urlsplit(target).scheme not in ("http", "https"):
        raise RegistryError(f"the registry redirects to {target!r}")
    return target


@contextlib.contextmanager
def _failures(url: str) -> Iterator[None]:
    """Turn what the HTTP library raises into errors of ours, which say whom we spoke to."""
    import httpx2

    try:
        yield
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailedError(f"connection to {urlsplit(url).netloc} failed: {reason}") from error
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise RegistryError(f"{urlsplit(url).netloc}: {error}") from error


def _http_client(local: bool, limits: Limits) -> Any:
    """Blocks for some tenths of a second the first time."""
    import httpx2

    # They tell of every request and every byte, with addresses that are signed.
    for library in ("httpx2", "httpcore2"):
        logging.getLogger(library).setLevel(logging.WARNING)
    return httpx2.AsyncClient(
        verify=_tls(),
        # As in Go, no proxy is between us and ourselves.
        trust_env=not local,
        timeout=httpx2.Timeout(limits.stall),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=limits.parallel),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
