"""The bounds of the connection layer, all in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes."""

    stall: float = 60.0
    """A client that takes no byte of its response for this long is dropped (R74)."""
    drain: float = 10.0
    """How long requests may go on after shutdown has begun."""
    last_words: float = 0.5
    """How long after that: an answer that is cut short then says why, and this is the time to take it."""
    keep_alive: float = 120.0
    """How long a connection may be idle, or take to send the head of a request. Clients with pools race a short one."""
    linger: float = 1.0
    """How long what a client still sends is read and thrown away, so that the answer it got is not lost to a reset."""
    head: int = 16 * 1024
    """Request line and headers; beyond it, 431."""
    ahead: int = 64 * 1024
    """What a client may send behind a request that is still being answered; beyond it, the connection ends."""
