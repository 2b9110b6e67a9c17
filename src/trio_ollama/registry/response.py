"""An answer over HTTP/1.1: its head, and its body with as little work per byte as can be had.

A body of known length is read from the connection right into the caller's buffer; parsing it would cost more than all
the rest. Others go through h11, piece by piece.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import h11
import trio

from .errors import AnswerError, ConnectionFailedError, RegistryError
from .pump import Sink, pump

__all__ = ["Response", "reason", "receive_into"]

ERROR_TEXT = 1024
"""Bytes of an error's text that are kept."""
SMALL_PIECE = 16 * 1024
PATIENCE = 0.2
"""Seconds of a slow body after which what there is gets used, however little."""

NextData = Callable[[], Awaitable[bytes]]


class Response:
    """`status`, `headers` (names in lower case), and a body that is read once.

    All methods raise ConnectionFailedError, also when no byte comes for `stall` seconds.
    """

    def __init__(
        self,
        stream: trio.abc.ReceiveStream,
        status: int,
        headers: Mapping[str, str],
        rest: bytes,
        next_data: NextData | None,
        length: int,
        stall: float,
    ) -> None:
        """`rest` has come with the head. `next_data`, if it is given, is asked for the body; else it has `length`."""
        self.status = status
        self.headers = headers
        self.left = length
        """Bytes of the body that are still to be read, where its length is known."""
        self._stream = stream
        self._rest = memoryview(rest)[:length] if next_data is None else memoryview(b"")
        self._next_data = next_data
        self._stall = stall
        self._over = False
        """The end of a body without a known length has come."""

    @property
    def length(self) -> int | None:
        """What the head says of the body's length."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isdecimal() and "transfer-encoding" not in self.headers else None

    @property
    def complete(self) -> bool:
        """All of the body was read, and the connection can be used again."""
        return self._next_data is None and not self.left

    async def fill(self, view: memoryview) -> int:
        """Put the next bytes into `view`: not until it is full, but until half of it is, the body ends, or it is slow.

        0 after the end. An error waits until what came before it was handed out.
        """
        wanted = len(view) if self._next_data is not None else min(len(view), self.left)
        filled, begin = 0, trio.current_time()
        while filled < wanted and filled <= len(view) // 2:
            try:
                count = await self._some(view[filled:wanted])
            except ConnectionFailedError:
                if not filled:
                    raise
                break
            filled += count
            if not count or trio.current_time() - begin > PATIENCE:
                break
        self.left -= filled
        return filled

    async def read(self, limit: int, *, cut: bool = False) -> bytes:
        """The body, whole. Beyond `limit` bytes it raises RegistryError, or is cut there."""
        data, piece = bytearray(), memoryview(bytearray(SMALL_PIECE))
        while len(data) <= limit and (count := await self.fill(piece)):
            data += piece[:count]
        if len(data) > limit and not cut:
            raise RegistryError(f"the registry's answer is larger than {limit} bytes")
        return bytes(data[:limit])

    async def pour(self, length: int, sink: Sink, piece: int, limiter: trio.CapacityLimiter) -> None:
        """Hand the next `length` bytes of the body to `sink`, in threads, at most `piece` at once.

        Raises what the sink raises, too.
        """
        if self._next_data is None and isinstance(self._stream, trio.SocketStream):
            wanted, length = length, min(length, self.left)
            rest, self._rest = self._rest[:length], self._rest[length:]
            if rest:
                await trio.to_thread.run_sync(sink, rest, limiter=limiter)
            await pump(self._stream.socket, length - len(rest), sink, piece, self._stall, limiter)
            self.left -= length
            if length < wanted:
                raise ConnectionFailedError("less came than was asked for")
            return
        buffer = memoryview(bytearray(piece))
        while length:
            count = await self.fill(buffer[:length])
            if not count:
                raise ConnectionFailedError("less came than was asked for")
            await trio.to_thread.run_sync(sink, buffer[:count], limiter=limiter)
            length -= count

    async def check(self) -> None:
        """Raises AnswerError for an answer that is an error."""
        if self.status >= 400:
            said = await self.read(ERROR_TEXT, cut=True)
            raise AnswerError(self.status, said.decode(errors="replace").strip())

    async def _some(self, view: memoryview) -> int:
        if not self._rest:
            try:
                with trio.fail_after(self._stall):
                    if self._next_data is None:
                        count = await receive_into(self._stream, view)
                        if not count:
                            raise ConnectionFailedError("the connection ended in the middle of a file")
                        return count
                    if self._over:
                        return 0
                    self._rest = memoryview(await self._next_data())
                    self._over = not self._rest
            except trio.TooSlowError:
                raise ConnectionFailedError(f"no byte came for {self._stall:g} seconds") from None
            except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
                raise ConnectionFailedError(f"the connection broke: {reason(error)}") from error
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def reason(error: BaseException) -> str:
    """What is at the bottom of an error of the network, as a text."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        else:
            return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


async def receive_into(stream: trio.abc.ReceiveStream, view: memoryview) -> int:
    """The next bytes of a stream; 0 at its end. From a plain socket they come without a detour."""
    if isinstance(stream, trio.SocketStream):
        return await stream.socket.recv_into(view)
    data = await stream.receive_some(len(view))
    view[: len(data)] = data
    return len(data)
