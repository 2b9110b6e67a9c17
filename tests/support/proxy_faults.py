"""What a proxy in front of a registry does to a request, and what it remembers of it."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Answer", "Exchange", "Fault", "Then"]

BLOB: Final = re.compile(r"/blobs/(sha256:[0-9a-f]{64})")


class Then(enum.Enum):
    """What becomes of a connection after the bytes that a fault lets pass."""

    RESET = "reset"
    END = "end"
    """A proper end of the stream, though more was promised."""
    STALL = "stall"
    """No byte any more, until the client leaves."""


@dataclass
class Exchange:
    """One request, and what became of it. Times are trio's."""

    method: str
    path: str
    """With the query."""
    headers: dict[str, str]
    """Names are in lower case."""
    received: int = 0
    """Bytes of the request's body that passed."""
    sent: int = 0
    """Bytes of the response's body that passed."""
    status: int | None = None
    length: float = math.inf
    """Of the response's body; unknown before there is one."""
    fault: Fault | None = None
    done: bool = False
    """The response passed to its end."""
    ended: bool = False
    """Nothing passes any more, one way or another."""
    left_at: float | None = None
    """When the client ended the connection while its response was on the way."""

    @property
    def digest(self) -> str | None:
        """Of a request for a blob."""
        return found[1] if (found := BLOB.search(self.path)) else None

    @property
    def start(self) -> int:
        """Where the wanted range of a blob begins."""
        return int(found[1]) if (found := re.match(r"bytes=(\d+)-", self.headers.get("range", ""))) else 0

    @property
    def passed(self) -> range:
        """The bytes of a blob that passed."""
        return range(self.start, self.start + self.sent)


@dataclass(frozen=True)
class Answer:
    """A response that the proxy makes itself."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Fault:
    """What is done to requests that fit; the first fault that fits and is not used up counts."""

    path: str = r"/blobs/sha256:"
    """A regular expression, searched for in the path with its query."""
    method: str = "GET"
    times: float = 1
    """How many requests it meets."""
    answer: Answer | Callable[[Exchange], Answer] | None = None
    """Instead of the registry's."""
    then: Then | None = None
    after: int = 0
    """`then` comes after so many bytes of the response's body (of the request's if it has one)."""
    flip: int | None = None
    """This byte is inverted, by its offset in the blob; of a request's body, by its offset there."""
    whole: bool = False
    """The wish for a range is kept from the registry, which answers 200 and everything."""
    short: int | None = None
    """The registry is asked for so many bytes of the wanted range at most: an honest response, but too short."""

    def fits(self, exchange: Exchange) -> bool:
        return self.times > 0 and exchange.method == self.method and bool(re.search(self.path, exchange.path))
