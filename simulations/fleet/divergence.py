"""Whether a seed of the pure fleet always gives the same trace (I27)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simulations.divergence import Divergence
from simulations.divergence import first_divergence as first_divergence_of

from .playback import play

__all__ = ["Divergence", "first_divergence"]

COMMAND = ("-m", "simulations.fleet")


def trace(seed: int) -> list[str]:
    lines: list[str] = []
    lines.append(play(seed, each_line=lambda line, detail: lines.append(line)).digest)
    return lines


def first_divergence(seeds: Sequence[int]) -> Iterator[str | Divergence]:
    """Each seed that is the same everywhere; or, as the last, the first divergence."""
    return first_divergence_of(
        [f"seed {seed}" for seed in seeds],
        lambda run: trace(int(run.split()[1])),
        hashes=(*COMMAND, "run", "--hashes", "--seeds", str(seeds[0]), str(seeds[-1] + 1)),
        replay=lambda run: (*COMMAND, "replay", run.split()[1], "--verbose"),
    )
