"""Where a child listens, and how a connection to it is made."""

from __future__ import annotations

import errno
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

import trio

__all__ = ["Endpoint", "loopback", "unix_socket"]

LONGEST_SOCKET_PATH = 107
"""Bytes of a `sockaddr_un` path, without its closing zero."""

BACKLOG_WAIT = 5.0
"""Seconds to wait for a place in the child's queue of connections."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Unix socket (`port` is 0, `host` its path), or a loopback port with a key."""

    host: str
    port: int = 0
    key: str | None = field(default=None, repr=False)

    async def connect(self) -> trio.SocketStream:
        """A fresh connection. Raises `OSError`."""
        if self.port:
            return await trio.open_tcp_stream(self.host, self.port)
        deadline = trio.current_time() + BACKLOG_WAIT
        pause = 0.001
        while True:
            await trio.lowlevel.checkpoint()
            try:
                return self._connect_unix()
            except BlockingIOError:
                # The child's backlog is full. There is nothing to wait on for that: a Unix socket that is not
                # connected reports itself as writable.
                if trio.current_time() >= deadline:
                    raise ConnectionRefusedError(errno.ECONNREFUSED, "the child accepts no connections") from None
            await trio.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _connect_unix(self) -> trio.SocketStream:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.connect(self.host)  # at once, or not at all
        except BaseException:
            connection.close()
            raise
        return trio.SocketStream(trio.socket.from_stdlib_socket(connection))


def unix_socket(path: Path) -> Endpoint | None:
    """An endpoint at `path`, or None if no socket can be had there."""
    if len(bytes(path)) > LONGEST_SOCKET_PATH:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.bind(bytes(path))
        path.unlink()
    except OSError:
        return None
    return Endpoint(str(path))


def loopback() -> Endpoint:
    """A free port of the loopback interface and a random key, which keeps strangers on this machine out.

    Another process may take the port before the child does; then the child exits and says so (R82).
    """
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
    return Endpoint("127.0.0.1", port, secrets.token_hex(16))
