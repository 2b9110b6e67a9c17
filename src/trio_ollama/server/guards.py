"""Who may talk to the daemon: web origins (CORS) and the Host header (against DNS rebinding).

The rules are pure functions; `install_guards` puts them before every route, also before the answer for an unknown path.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import psutil
from quart import Response, request

from .asgi import App, empty_response

__all__ = ["OriginRules", "host_allowed", "host_of", "install_guards", "same_origin"]

ALLOW_METHODS = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"
_STAINLESS = (
    "arch async custom-poll-interval helper-method lang os package-version poll-helper retry-count runtime "
    "runtime-version timeout"
)
ALLOW_HEADERS = ",".join(
    [
        *("Authorization", "Content-Type", "User-Agent", "Accept", "X-Requested-With", "OpenAI-Beta"),
        *(f"x-stainless-{name}" for name in _STAINLESS.split()),
        *("X-Request-Id", "X-Abandoned-Load"),  # ours
    ]
)
MAX_AGE = "43200"  # 12 h
EXPOSED = "X-Request-Id,request-id"
"""Headers of answers that a page may read: by their id it finds and cancels its requests."""

LOCAL_SUFFIXES = (".localhost", ".local", ".internal")
PRIVATE_NETWORKS = tuple(ip_network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))


@dataclass(frozen=True, slots=True)
class OriginRules:
    """Which web origins may use the API."""

    any: bool
    """An entry is `*` alone."""
    exact: frozenset[str]
    patterns: tuple[tuple[str, str], ...]
    """What stands before and after the `*` of an entry."""

    @classmethod
    def parse(cls, entries: Iterable[str]) -> OriginRules:
        """Rules from entries with at most one `*` each, which stands for any run of characters.

        Raises `ValueError` for an entry with more.
        """
        exact: set[str] = set()
        patterns: list[tuple[str, str]] = []
        everything = False
        for entry in entries:
            before, star, after = entry.lower().partition("*")
            if "*" in after:
                raise ValueError(f"bad origin {entry!r}: only one '*' is allowed")
            if not star:
                exact.add(before)
            elif before or after:
                patterns.append((before, after))
            else:
                everything = True
        return cls(everything, frozenset(exact), tuple(patterns))

    def allows(self, origin: str) -> bool:
        """True if a page of this origin may use the API."""
        origin = origin.lower()
        return (
            self.any
            or origin in self.exact
            or any(
                len(origin) >= len(before) + len(after) and origin.startswith(before) and origin.endswith(after)
                for before, after in self.patterns
            )
        )


def same_origin(origin: str, host: str) -> bool:
    """True if the page came from this very server, going by the Host header it uses."""
    return origin in (f"http://{host}", f"https://{host}")


def host_of(header: str) -> str:
    """The host in a Host header: lower case, without port and brackets."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    name, colon, _ = header.partition(":")
    return name if header.count(":") == 1 and colon else header


def host_allowed(header: str, hostname: str, is_own_address: Callable[[str], bool]) -> bool:
    """True if a Host header names this machine or its own network rather than some site's rebound name."""
    host = host_of(header)
    if host in ("", "localhost", hostname.lower()) or host.endswith(LOCAL_SUFFIXES):
        return True
    address: IPv4Address | IPv6Address | None
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return (
        address.is_loopback
        or address.is_unspecified
        or any(address in network for network in PRIVATE_NETWORKS)
        or is_own_address(str(address))
    )


def is_own_address(address: str) -> bool:
    """True if one of this machine's interfaces has the address."""
    return any(
        entry.address.partition("%")[0] == address for entries in psutil.net_if_addrs().values() for entry in entries
    )


def install_guards(app: App, *, origins: Iterable[str], loopback: bool) -> None:
    """Check the Origin and Host headers of every request to `app`.

    `loopback`: the server listens on loopback addresses only, so a request that names another host came by a name
    that was made to point here. Refusals are 403 with an empty body.
    """
    rules = OriginRules.parse(origins)
    hostname = socket.gethostname()

    def cross_origin() -> str:
        origin = request.headers.get("Origin", "")
        return "" if same_origin(origin, request.headers.get("Host", "")) else origin

    async def check() -> Response | None:
        origin = cross_origin()
        if origin:
            if not rules.allows(origin):
                return empty_response(403)
            if request.method == "OPTIONS":
                headers = {
                    "Access-Control-Allow-Methods": ALLOW_METHODS,
                    "Access-Control-Allow-Headers": ALLOW_HEADERS,
                    "Access-Control-Max-Age": MAX_AGE,
                }
                return empty_response(204, headers)
        if loopback:
            if not host_allowed(request.headers.get("Host", ""), hostname, is_own_address):
                return empty_response(403)
            if request.method == "OPTIONS":
                return empty_response(204)
        return None

    async def mark(response: Response) -> Response:
        origin = cross_origin()
        if origin and rules.allows(origin):
            response.headers["Access-Control-Allow-Origin"] = "*" if rules.any else origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSED
            if not rules.any:
                response.headers.add("Vary", "Origin")
        return response

    app.before_request(check)
    app.after_request(mark)
