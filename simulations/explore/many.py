"""Many runs, one after the other or in several processes; results come in the order of the spots."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, islice, product
from typing import Final

from simulations.scenarios.report import Result, play_and_judge
from simulations.scenarios.seeds import find
from simulations.scenarios.workloads import KINDS

__all__ = ["less_garbage", "play_all", "texts"]

AT_ONCE: Final = 64
"""Spots that are handed to each process in one go; how many are played in vain when it is time to stop."""
GARBAGE: Final = (50_000, 20, 100)
"""Thresholds of the collector: a run leaves little behind that could be collected, and is short."""


def texts(
    seeds: Sequence[int], schedules: int = 1, orders: Sequence[str] = ("shuffle",), kind: str | None = None
) -> Iterator[str]:
    """Names of runs: all interleavings of a workload, then the next one. `seeds`: (first, beyond) or (first,)."""
    kinds = list(KINDS)
    for seed in range(*seeds) if len(seeds) > 1 else count(*seeds):
        if kind is None or kinds[seed % len(kinds)] == kind:
            for schedule, order in product(range(schedules), orders):
                yield f"{seed}:{schedule}:{order}"


def play_all(spots: Iterable[str], *, jobs: int = 1, hashed: bool = False) -> Iterator[Result]:
    play = partial(_play, hashed=hashed)
    if jobs == 1:
        with less_garbage():
            yield from map(play, spots)
        return
    spots = iter(spots)
    with multiprocessing.get_context("spawn").Pool(jobs, _collect_less) as pool:
        while some := list(islice(spots, jobs * AT_ONCE)):
            yield from pool.imap(play, some, chunksize=8)


def _play(spot: str, *, hashed: bool) -> Result:
    return play_and_judge(find(spot), hashed=hashed)


def _collect_less() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)


@contextmanager
def less_garbage() -> Iterator[None]:
    """Garbage is collected seldom meanwhile."""
    before = gc.get_threshold()
    _collect_less()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
