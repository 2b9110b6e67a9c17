"""The sockets that the daemon listens on, opened before anything else: a taken address fails first, with one line."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

import trio

__all__ = ["AddressError", "Bound", "open_listeners"]

BACKLOG = 512
ABSENT = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
"""This machine has no such address; no reason to fail while there is another one to listen on."""


class AddressError(Exception):
    """An address cannot be listened on. One line that names it, fit for a user."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Listening sockets. Close them with `close`, or give them to `serve`, which does so."""

    listeners: tuple[trio.SocketListener, ...]
    addresses: tuple[tuple[str, int], ...]
    """Numeric host and real port of each."""

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect."""
        return all(ip_address(host.partition("%")[0]).is_loopback for host, _ in self.addresses)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each as `host:port`, IPv6 in brackets."""
        return tuple(_text(host, port) for host, port in self.addresses)

    def close(self) -> None:
        """Stop listening."""
        for listener in self.listeners:
            listener.socket.close()


async def open_listeners(addresses: Iterable[tuple[str, int]], *, unacknowledged: float = 60.0) -> Bound:
    """Listen on all of `addresses` (host name or IP, port; port 0: one free port for all of them).

    Addresses that this machine does not have are left out as long as one is left. `unacknowledged`: seconds after which
    the kernel gives up a client that acknowledges nothing, the second line behind the connection's own stall limit.
    Raises `AddressError`; then nothing is left open.
    """
    wanted = await _resolve(addresses)
    sockets: list[socket.socket] = []
    absent: AddressError | None = None
    free_port = 0
    try:
        for family, host, port in wanted:
            try:
                sock = _listen(family, host, port or free_port, len(wanted) > 1, unacknowledged)
            except OSError as error:
                reason = AddressError(f"listen tcp {_text(host, port)}: {os.strerror(error.errno or 0).lower()}")
                if error.errno not in ABSENT:
                    raise reason from error
                absent = reason
            else:
                sockets.append(sock)
                free_port = sock.getsockname()[1]
        if not sockets:
            raise absent or AddressError("no address to listen on")
    except AddressError:
        for sock in sockets:
            sock.close()
        raise
    listeners = tuple(trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets)
    return Bound(listeners, tuple(sock.getsockname()[:2] for sock in sockets))


async def _resolve(addresses: Iterable[tuple[str, int]]) -> list[tuple[int, str, int]]:
    """Address family, numeric host and port of each, in order, without repetitions."""
    found: dict[tuple[int, str, int], None] = {}
    for host, port in addresses:
        try:
            entries = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except (OSError, UnicodeError) as error:
            raise AddressError(f"listen tcp {_text(host, port)}: {error}") from error
        for family, _, _, _, address in entries:
            if family in (socket.AF_INET, socket.AF_INET6):
                found[int(family), str(address[0]), port] = None
    return list(found)


def _listen(family: int, host: str, port: int, only_ipv6: bool, unacknowledged: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_ipv6)
        # Accepted sockets inherit these. TCP_NODELAY, and TCP_NOTSENT_LOWAT that makes a client which does not read
        # felt after some kilobytes instead of megabytes, are set on each of them by `trio.SocketStream`.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        milliseconds = int(min(unacknowledged, 86_400.0) * 1000)
        for name, value in (
            ("TCP_USER_TIMEOUT", milliseconds),
            # A client that vanished without a word is noticed within a minute even when nothing is sent.
            ("TCP_KEEPIDLE", 30),
            ("TCP_KEEPINTVL", 10),
            ("TCP_KEEPCNT", 3),
        ):
            if hasattr(socket, name):  # not every system has them
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
