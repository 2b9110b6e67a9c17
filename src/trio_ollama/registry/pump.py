"""Bytes from a socket to wherever they belong, by a thread that does nothing else.

With a registry that is near, waking the event loop for each piece and handing that to a thread takes longer than all
the rest. So the thread that writes is the one that receives; the event loop begins it, and can end it at any moment.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable

import trio

from .errors import ConnectionFailedError

__all__ = ["Sink", "pump"]

Sink = Callable[[memoryview], None]
"""Takes the next bytes; called in a thread."""


async def pump(
    source: trio.socket.SocketType, length: int, sink: Sink, piece: int, stall: float, limiter: trio.CapacityLimiter
) -> None:
    """Hand the next `length` bytes of a connection to `sink`, at most `piece` at once.

    Raises ConnectionFailedError when they end early or none comes for `stall` seconds (what came is handed over
    before), and what the sink raises. When cancelled, it takes no longer than one call of the sink.
    """
    work = _Work(source.fileno(), stall)

    async def watch() -> None:
        try:
            await trio.sleep_forever()
        finally:
            work.stopped = True
            if not work.done:
                with contextlib.suppress(OSError):  # it is broken already
                    source.shutdown(trio.socket.SHUT_RDWR)  # wakes the thread if it waits

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, name="pump: watch")
        failure = await trio.to_thread.run_sync(work.run, length, sink, piece, limiter=limiter)
        nursery.cancel_scope.cancel("done")
    if failure is not None:
        raise failure


class _Work:
    """What the thread does; `stopped` is set from outside."""

    def __init__(self, descriptor: int, stall: float) -> None:
        self.stopped = False
        self.done = False
        self._descriptor = descriptor
        self._stall = stall
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def run(self, length: int, sink: Sink, piece: int) -> Exception | None:
        """Returns what went wrong."""
        try:
            buffer = memoryview(bytearray(min(piece, length)))
            while length and not self.stopped:
                count, ended = self._receive(buffer[:length])
                sink(buffer[:count])
                length -= count
                if ended and length:
                    return ConnectionFailedError(ended)
        except Exception as error:
            return error
        finally:
            self.done = True
        return None

    def _receive(self, view: memoryview) -> tuple[int, str]:
        """As much as there is, something at least; and why there will be no more, if that is so."""
        filled = 0
        while filled < len(view) and not self.stopped:
            try:
                count = os.readv(self._descriptor, [view[filled:]])
            except BlockingIOError:
                if filled:
                    break
                if not self._poll.poll(self._stall * 1000):
                    return filled, f"no byte came for {self._stall:g} seconds"
                continue
            except OSError as error:
                return filled, f"the connection broke: {error.strerror}"
            if not count:
                return filled, "the connection ended in the middle of a file"
            filled += count
        return filled, ""
