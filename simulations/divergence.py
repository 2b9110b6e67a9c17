"""Whether a run always gives the same trace: twice in this process, and in another one with other hashes (I27)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

__all__ = ["Divergence", "first_divergence"]

ROOT: Final = Path(__file__).parents[1]
HERE, AGAIN, ELSEWHERE = "in this process", "in this process again", "in a process with other hashes"
END: Final = "(nothing more)"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first line of two traces of a run that differs; `line` counts from 1."""

    run: str
    line: int
    before: str
    """The line before, which both have."""
    texts: tuple[tuple[str, str], tuple[str, str]]
    """(where it ran, the line) twice."""

    def __str__(self) -> str:
        lines = [f"{self.run} diverges at line {self.line} of its trace, after", f"    {self.before}"]
        for where, text in self.texts:
            lines += [f"{where}:", f"    {text}"]
        return "\n".join(lines)


def first_divergence(
    runs: Sequence[str],
    trace: Callable[[str], list[str]],
    *,
    hashes: Sequence[str],
    replay: Callable[[str], Sequence[str]],
) -> Iterator[str | Divergence]:
    """Each run that is the same everywhere; or, as the last, the first divergence.

    `trace`: the lines of a run, its hash last. `hashes`: what makes Python print the hashes of all runs, each as the
    last word of a line that begins with the name of its run. `replay`: what makes it print the lines of one.
    """
    with _other_process(hashes, runs) as others:
        for run in runs:
            one = trace(run)
            found = _difference(run, one, trace(run), AGAIN)
            if found is None and next(others, "") != one[-1]:
                found = _difference(run, one, _lines_elsewhere(replay(run)), ELSEWHERE)
                if found is None:  # another trace with the other runs than alone: there is a state between them
                    texts = ((HERE, one[-1]), (ELSEWHERE, "another trace, but only after the runs before it"))
                    found = Divergence(run, len(one), one[-2], texts)
            if found is not None:
                yield found
                return
            yield run


def _difference(run: str, one: Sequence[str], other: Sequence[str], where: str) -> Divergence | None:
    for number, (text, twin) in enumerate(zip_longest(one, other, fillvalue=END)):
        if text != twin:
            before = one[number - 1] if number else "(the beginning)"
            return Divergence(run, number + 1, before, ((HERE, text), (where, twin)))
    return None


def _environment() -> dict[str, str]:
    """Ours, with other hashes of strings: ours are random, or of another seed."""
    ours = os.environ.get("PYTHONHASHSEED")
    return {**os.environ, "PYTHONHASHSEED": "1" if ours != "1" else "2"}


@contextmanager
def _other_process(arguments: Sequence[str], runs: Sequence[str]) -> Iterator[Iterator[str]]:
    """The hashes of the runs as another process finds them, one by one; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        names = set(runs)
        try:
            yield (words[1] for words in map(lambda line: line.rsplit(None, 1), child.stdout) if words[0] in names)
        finally:
            child.kill()


def _lines_elsewhere(arguments: Sequence[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()
