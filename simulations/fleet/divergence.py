"""Whether a seed always gives the same trace: twice in this process, and in another one with other hashes (I27)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from .playback import play

__all__ = ["Divergence", "first_divergence"]

ROOT: Final = Path(__file__).parents[2]
HERE, AGAIN, ELSEWHERE = "in this process", "in this process again", "in a process with other hashes"
END: Final = "(nothing more)"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first line of two traces of a seed that differs; `line` counts from 1."""

    seed: int
    line: int
    before: str
    """The line before, which both have."""
    texts: tuple[tuple[str, str], tuple[str, str]]
    """(where it ran, the line) twice."""

    def __str__(self) -> str:
        lines = [f"seed {self.seed} diverges at line {self.line} of its trace, after", f"    {self.before}"]
        for where, text in self.texts:
            lines += [f"{where}:", f"    {text}"]
        return "\n".join(lines)


def trace(seed: int) -> list[str]:
    lines: list[str] = []
    lines.append(play(seed, each_line=lambda line, detail: lines.append(line)).digest)
    return lines


def difference(seed: int, one: Sequence[str], other: Sequence[str], where: str) -> Divergence | None:
    for number, (text, twin) in enumerate(zip_longest(one, other, fillvalue=END)):
        if text != twin:
            before = one[number - 1] if number else "(the beginning)"
            return Divergence(seed, number + 1, before, ((HERE, text), (where, twin)))
    return None


def first_divergence(seeds: Sequence[int]) -> Iterator[int | Divergence]:
    """Each seed that is the same everywhere; or, as the last, the first divergence."""
    with _other_process(seeds) as hashes:
        for seed in seeds:
            one = trace(seed)
            found = difference(seed, one, trace(seed), AGAIN)
            if found is None and next(hashes, "") != one[-1]:
                found = difference(seed, one, _trace_elsewhere(seed), ELSEWHERE)
                if found is None:  # another trace with the other seeds than alone: there is a state between them
                    texts = ((HERE, one[-1]), (ELSEWHERE, "another trace, but only after the seeds before it"))
                    found = Divergence(seed, len(one), one[-2], texts)
            if found is not None:
                yield found
                return
            yield seed


def _environment() -> dict[str, str]:
    """Ours, with other hashes of strings: ours are random, or of another seed."""
    ours = os.environ.get("PYTHONHASHSEED")
    return {**os.environ, "PYTHONHASHSEED": "1" if ours != "1" else "2"}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "simulations.fleet", *arguments]


@contextmanager
def _other_process(seeds: Sequence[int]) -> Iterator[Iterator[str]]:
    """The hashes of the seeds as another process finds them, one by one; it ends with the block."""
    command = _command("run", "--hashes", "--seeds", str(seeds[0]), str(seeds[-1] + 1))
    with subprocess.Popen(
        command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        try:
            yield (line.split()[-1] for line in child.stdout if line.startswith("seed "))
        finally:
            child.kill()


def _trace_elsewhere(seed: int) -> list[str]:
    command = _command("replay", str(seed), "--verbose")
    done = subprocess.run(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines()
