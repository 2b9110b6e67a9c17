"""One connection to a server, over TLS or not, through a proxy or not; one request at a time.

Our own, because a pool of connections that is shared between tasks loses some when requests are cancelled, and a
general client costs several times more per byte. The grammar of HTTP is h11's. Closing takes no wait, so it works
however a request ends.
"""

from __future__ import annotations

import base64
import functools
import ssl
from collections.abc import AsyncIterable, Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import h11
import trio

from .errors import ConnectionFailedError, RegistryError
from .response import Response, reason

__all__ = ["Connection", "Content"]

LARGEST_HEAD: Final = 64 * 1024
RECEIVE: Final = 64 * 1024
UNREAD: Final = 4 << 20
"""Bytes that the kernel takes at most before we read them: they are lost with the daemon. Sixteen connections with so
much on the way are more than any line needs."""

Content = bytes | AsyncIterable[bytes]
"""The body of a request; one that is iterated needs a Content-Length."""


class Connection:
    """A connection to the host of `url`; made by `open`."""

    def __init__(self, stream: trio.abc.Stream, url: SplitResult, proxied: bool) -> None:
        self._stream = stream
        self._url = url
        self._proxied = proxied
        """Plain HTTP through a proxy, which is told the whole URL."""
        self._http = h11.Connection(h11.CLIENT, LARGEST_HEAD)
        self._response: Response | None = None
        self._sent = False
        self._keeps = False

    @classmethod
    async def open(cls, url: str, *, direct: bool, limit: float) -> Connection:
        """Connect, within `limit` seconds; `direct`: past any proxy. Raises ConnectionFailedError."""
        parts = urlsplit(url)
        proxy = "" if direct else _proxy(parts)
        try:
            with trio.fail_after(limit):
                stream: trio.abc.Stream = await _tcp(urlsplit(proxy) if proxy else parts)
                try:
                    if parts.scheme == "https":
                        if proxy:
                            await _tunnel(stream, parts, urlsplit(proxy))
                        context = await trio.to_thread.run_sync(_tls)
                        stream = trio.SSLStream(stream, context, server_hostname=parts.hostname, https_compatible=True)
                        await stream.do_handshake()
                    return cls(stream, parts, bool(proxy) and parts.scheme == "http")
                except BaseException:
                    _socket(stream).close()
                    raise
        except trio.TooSlowError:
            why = f"no connection within {limit:g} seconds"
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            why = reason(error)
        raise ConnectionFailedError(f"connection to {parts.netloc} failed: {why}")

    async def request(
        self, method: str, url: str, headers: Mapping[str, str], content: Content, *, stall: float, patience: float
    ) -> Response:
        """Send a request and take the head of its answer.

        What an answer that comes early leaves of the body is not sent: a server that wants it elsewhere says so at
        once. `stall`: seconds that a piece of either body may take, `patience`: that the answer may take after all is
        sent. Raises ConnectionFailedError, and whatever the content raises.
        """
        self._http = h11.Connection(h11.CLIENT, LARGEST_HEAD)
        self._sent, self._keeps, self._response = False, False, None
        parts = urlsplit(url)
        target = url if self._proxied else f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        fields = {"Host": parts.netloc.rpartition("@")[2], **headers}
        if isinstance(content, bytes) and (content or method in ("POST", "PUT", "PATCH")):
            fields["Content-Length"] = str(len(content))
        if self._proxied and (proxy := _proxy(parts)):
            fields |= _proxy_authorization(urlsplit(proxy))
        try:
            head = self._http.send(h11.Request(method=method, target=target.encode(), headers=[*fields.items()]))
        except (h11.LocalProtocolError, UnicodeEncodeError) as error:
            raise RegistryError(f"no request can be made of {url!r}: {error}") from error
        assert head is not None
        failure: Exception | None = None
        answered = None

        async def send(waiting: trio.CancelScope) -> None:
            nonlocal failure
            try:
                await self._send(head, content, stall)
                waiting.deadline = trio.current_time() + patience
            except trio.BrokenResourceError:
                waiting.deadline = trio.current_time() + patience  # it may have answered before it closed
            except Exception as error:
                failure = error
                waiting.cancel("the request failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, nursery.cancel_scope, name="send")
            try:
                answered = await self._head(method, stall)
            except ConnectionFailedError as error:
                failure = failure or error
            except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
                failure = failure or ConnectionFailedError(f"connection to {self._url.netloc} failed: {reason(error)}")
            nursery.cancel_scope.cancel("answered")
        if answered is not None:
            self._response = answered
            return answered
        raise failure or ConnectionFailedError(f"connection to {self._url.netloc} failed: no answer")

    @property
    def reusable(self) -> bool:
        """The last answer was read to its end, and the other side is still there."""
        complete = self._response is not None and self._response.complete and self._sent and self._keeps
        return complete and not _socket(self._stream).is_readable()

    def close(self) -> None:
        """Close it, now and without a word."""
        _socket(self._stream).close()

    async def _send(self, head: bytes, content: Content, stall: float) -> None:
        if isinstance(content, bytes):
            await self._send_some(head + (self._http.send(h11.Data(content)) or b""), stall)
        else:
            await self._send_some(head, stall)
            async for piece in content:
                await self._send_some(self._http.send(h11.Data(piece)) or b"", stall)
        self._http.send(h11.EndOfMessage())  # no bytes: every body has a length
        self._sent = True

    async def _send_some(self, data: bytes, stall: float) -> None:
        try:
            with trio.fail_after(stall):
                await self._stream.send_all(data)
        except trio.TooSlowError:
            raise ConnectionFailedError(f"{self._url.netloc} took no byte for {stall:g} seconds") from None

    async def _head(self, method: str, stall: float) -> Response:
        while not isinstance(event := await self._event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise ConnectionFailedError(f"{self._url.netloc} does not answer as a server does")
        headers: dict[str, str] = {}
        for name, value in event.headers:
            headers.setdefault(name.decode(), value.decode("latin-1"))
        self._keeps = event.http_version == b"1.1" and headers.get("connection", "").lower() != "close"
        length = headers.get("content-length", "")
        if method == "HEAD" or event.status_code in (204, 304):
            return Response(self._stream, event.status_code, headers, b"", None, 0, stall)
        if length.isdecimal() and "transfer-encoding" not in headers:
            rest, _ = self._http.trailing_data
            return Response(self._stream, event.status_code, headers, rest, None, int(length), stall)
        return Response(self._stream, event.status_code, headers, b"", self._data, 0, stall)

    async def _data(self) -> bytes:
        """The next piece of a body that is chunked, or ends with the connection; empty at the end."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(RECEIVE)))
        assert event is not h11.NEED_DATA
        return event  # type: ignore[return-value]


async def _tcp(where: SplitResult) -> trio.SocketStream:
    port = where.port or {"http": 80, "https": 443}.get(where.scheme, 80)
    stream = await trio.open_tcp_stream(where.hostname or "", port)
    if hasattr(trio.socket, "TCP_WINDOW_CLAMP"):  # Linux
        stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_WINDOW_CLAMP, UNREAD)
    return stream


async def _tunnel(stream: trio.abc.Stream, to: SplitResult, proxy: SplitResult) -> None:
    """Have a proxy connect us."""
    target = f"{to.hostname}:{to.port or 443}"
    http = h11.Connection(h11.CLIENT, LARGEST_HEAD)
    headers = {"Host": target, **_proxy_authorization(proxy)}
    await stream.send_all(http.send(h11.Request(method="CONNECT", target=target, headers=[*headers.items()])) or b"")
    while (event := http.next_event()) is h11.NEED_DATA or isinstance(event, h11.InformationalResponse):
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(RECEIVE)))
    if not isinstance(event, h11.Response) or event.status_code != 200:
        said = event.status_code if isinstance(event, h11.Response) else "nothing"
        raise OSError(f"the proxy {proxy.netloc.rpartition('@')[2]} answers {said}")


def _proxy(url: SplitResult) -> str:
    """The proxy that the environment names for this URL; empty for none."""
    if proxy_bypass(url.netloc.rpartition("@")[2]):
        return ""
    proxy = getproxies().get(url.scheme, "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _socket(stream: trio.abc.Stream) -> trio.socket.SocketType:
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    assert isinstance(stream, trio.SocketStream)
    return stream.socket


@functools.cache
def _tls() -> ssl.SSLContext:
    """The certificates that this machine trusts; reading them blocks."""
    return ssl.create_default_context()
