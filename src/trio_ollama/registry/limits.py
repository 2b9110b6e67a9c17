"""How long a transfer waits for what, and how much it does at once; seconds and bytes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

__all__ = ["Limits"]

_CHANCE = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults are Ollama's, where it has such a thing."""

    parallel: int = 16
    """Parts of one blob that are fetched at once, at most."""
    opening: float = 0.05
    """Between two connections that are opened for one blob, to see what the others bring."""
    stall: float = 30.0
    """Without a byte for so long, a connection is given up."""
    tries: int = 6
    """Attempts in a row that bring nothing, until a part is given up."""
    first_pause: float = 1.0
    """Before the second attempt; doubled each time."""
    locating: float = 30.0
    """For so long it is tried to find out where a blob lies."""
    asking: float = 2.0
    """For so long other small requests are tried: somebody waits to hear that a host is wrong."""
    tick: float = 0.06
    """Between two lines of progress."""
    lock_poll: float = 0.25
    """Between two looks at a file that another process is downloading to."""
    part: int = 16_000_000
    """A part that is fetched has at least so many bytes."""
    upload_part: int = 100_000_000
    """And one that is sent."""
    save_every: int = 2_000_000
    """Bytes of a part after which its progress is saved: no more than that, and what is on the way, is fetched again
    after a kill."""
    piece: int = 1024 * 1024
    """Bytes that are read before they are written: enough to make the visit to a thread cheap, few enough to hold
    sixteen times."""

    def pause(self, failures: int) -> float:
        """Before the next attempt at a part, after so many failures in a row (1, 2, …)."""
        return self.first_pause * 2.0 ** (failures - 1)

    def short_pause(self, failures: int) -> float:
        """Before the next attempt at a small request: 10 ms, growing with the square, spread so that many clients do
        not come back at once."""
        return min(0.01 * failures**2, 10.0) * _CHANCE.uniform(0.5, 1.5)
