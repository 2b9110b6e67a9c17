"""Who was given a runner that an earlier request wants gone: of these there is a bound (I23)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

__all__ = ["Overtakers"]


class Overtakers:
    """The seqs that were granted by last call, for each resource that the runner holds."""

    def __init__(self) -> None:
        self._seqs: dict[str, list[int]] = {}
        """Sorted."""

    def note(self, seq: int, resources: Iterable[str], oldest: int) -> None:
        """`seq` has overtaken somebody. `oldest`: of those who still wait; what is before it interests nobody."""
        for id_ in resources:
            seqs = self._seqs.setdefault(id_, [])
            insort(seqs, seq)
            del seqs[: bisect_left(seqs, oldest)]

    def of(self, seq: int, resource: str) -> int:
        """How many have overtaken the request `seq`, which waits for `resource`: those that came after it."""
        seqs = self._seqs.get(resource, ())
        return len(seqs) - bisect_right(seqs, seq)

    def clear(self) -> None:
        self._seqs.clear()

    def __len__(self) -> int:
        return len(self._seqs)
