"""Who is evicted first."""

from __future__ import annotations

from .values import FOREVER

__all__ = ["eviction_order"]


def eviction_order(key: str, keep_alive_ns: int, busy: bool, gen: int) -> tuple[bool, int, str, int]:
    """Upstream's order as a sort key (R42): idle runners first, then the shortest keep-alive, then by key.

    An infinite keep-alive (`FOREVER`, or any negative number) comes last, but is no protection. Generations are
    unique, so the order is total.
    """
    return (busy, keep_alive_ns if 0 <= keep_alive_ns < FOREVER else FOREVER, key, gen)
