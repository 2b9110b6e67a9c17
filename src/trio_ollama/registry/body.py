"""The body of a large answer, a piece at a time, with as little work per byte as can be had.

Over TLS the HTTP library hands out the body. Over plain HTTP, where the registry is near and the link as fast as this
machine, that costs more than all the rest; there the bytes go from the socket right into the buffer that is written.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

import trio

from .errors import ConnectionFailedError

if TYPE_CHECKING:
    import httpx2

__all__ = ["Body"]


PATIENCE: Final = 0.2
"""Seconds of a slow body after which what there is gets written, however little."""


class Body:
    """Reads at most `length` bytes of an answer's body; whoever has read some must not use the answer otherwise."""

    def __init__(
        self, response: httpx2.Response, chunks: AsyncGenerator[bytes, None], length: int, stall: float
    ) -> None:
        """`chunks` are the answer's raw body; the caller closes them."""
        self._chunks = chunks
        self._left = length
        self._stall = stall
        self._chunk = memoryview(b"")
        self._socket = None if length != declared_length(response) else _plain_socket(response)
        self._begun = False

    async def fill(self, view: memoryview) -> int:
        """Put the next bytes into `view`: not until it is full, but until half of it is, the body ends, or it is slow.

        Raises ConnectionFailedError when the body ends early or nothing comes for the stall limit; what came before
        that is handed out first.
        """
        filled, wanted, begin = 0, min(len(view), self._left), trio.current_time()
        while filled < wanted and filled <= len(view) // 2:
            try:
                with trio.fail_after(self._stall):
                    count = await self._some(view[filled:wanted])
            except trio.TooSlowError:
                error = ConnectionFailedError(f"no byte came for {self._stall:g} seconds")
                if not filled:
                    raise error from None
                break
            except Exception:
                if not filled:
                    raise
                break
            if not count:
                if not filled:
                    raise ConnectionFailedError("the connection ended in the middle of a file")
                break
            filled += count
            if trio.current_time() - begin > PATIENCE:
                break
        self._left -= filled
        return filled

    async def _some(self, view: memoryview) -> int:
        if not self._chunk:
            if self._socket is not None and self._begun:
                return await _receive(self._socket, view)
            # The first chunk is what came together with the head, or the first that comes: the library keeps no more.
            self._chunk = memoryview(await anext(self._chunks, b""))
            self._begun = True
        count = min(len(view), len(self._chunk))
        view[:count] = self._chunk[:count]
        self._chunk = self._chunk[count:]
        return count


def declared_length(response: httpx2.Response) -> int | None:
    """The body's length, if the answer says it and the body comes as it is."""
    headers = response.headers
    if "transfer-encoding" in headers or headers.get("content-encoding", "identity") != "identity":
        return None
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() else None


def _plain_socket(response: httpx2.Response) -> trio.socket.SocketType | None:
    stream = response.extensions.get("network_stream")
    if stream is None or stream.get_extra_info("ssl_object") is not None:
        return None
    found = stream.get_extra_info("socket")
    return found if isinstance(found, trio.socket.SocketType) else None


async def _receive(source: trio.socket.SocketType, view: memoryview) -> int:
    try:
        return await source.recv_into(view)
    except OSError as error:
        raise ConnectionFailedError(f"the connection broke: {error.strerror}") from error
