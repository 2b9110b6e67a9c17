"""Plant small faults in our scheduler, one at a time, and see whether the simulation notices each.

Every fault gets a process of its own, which stops at the first thing that is wrong. Survivors are listed; the status is
1 if one survives without a known reason, or if fewer than 95 % are caught.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from simulations.mutants.catalogue import MUTANTS
from simulations.mutants.detect import BUDGET, ENOUGH
from simulations.mutants.mutant import Mutant
from simulations.mutants.plant import command

__all__ = ["Verdict", "arguments", "examine", "main", "sample"]

ENOUGH_CAUGHT: Final = 0.95
WIDTH: Final = 96
"""Of what is told of a catch."""


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    caught: str
    """What gave it away; empty if nothing did."""
    seconds: float
    """Of CPU time."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="these mutants (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="only N, spread over the catalogue, always the same")
    parser.add_argument(
        "--seconds", type=float, default=BUDGET, help=f"of CPU time for each mutant (default: {BUDGET:g})"
    )
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help=f"processes at the same time (default: {jobs})")
    parser.add_argument("--list", action="store_true", help="only say which there are, and what is wrong with each")


def main(options: argparse.Namespace) -> int:
    unknown = [name for name in options.names if name not in MUTANTS]
    if unknown:
        print(f"there is no mutant {', '.join(unknown)}; --list says which there are")
        return 2
    chosen = [MUTANTS[name] for name in options.names] or list(MUTANTS.values())
    if options.sample is not None:
        chosen = list(sample(chosen, options.sample))
    if options.list:
        print(*(f"{mutant.name:<40} {mutant.mistake}" for mutant in chosen), sep="\n")
        return 0
    return _report(trio.run(_examine_all, chosen, options.seconds, options.jobs))


def sample(mutants: Sequence[Mutant], count: int) -> Iterator[Mutant]:
    """`count` of those that have to be caught, spread evenly."""
    mortal = [mutant for mutant in mutants if not mutant.survives]
    count = min(count, len(mortal))
    return (mortal[number * len(mortal) // count] for number in range(count))


async def _examine_all(mutants: Sequence[Mutant], seconds: float, jobs: int) -> list[Verdict]:
    verdicts: list[Verdict] = []
    left = iter(mutants)

    async def judge() -> None:
        for mutant in left:
            verdict = await examine(mutant, seconds)
            print(f"{mutant.name:<40} {verdict.seconds:>6.1f} s  {(verdict.caught or 'survives')[:WIDTH]}", flush=True)
            verdicts.append(verdict)

    async with trio.open_nursery() as nursery:
        for _ in range(jobs):
            nursery.start_soon(judge)
    return verdicts


async def examine(mutant: Mutant, seconds: float) -> Verdict:
    """Plant a mutant in a process of its own and look for it there."""
    line = command(mutant.name, "simulations.mutants.detect", "--seconds", f"{seconds:g}")
    done = await trio.run_process(line, capture_stdout=True, capture_stderr=True, check=False)
    if done.returncode < 0:  # by the limit of CPU time
        return Verdict(mutant, "a run that does not end", seconds + ENOUGH)
    try:
        catch: dict[str, Any] | None = json.loads(done.stdout)
    except ValueError:
        text = done.stderr.decode(errors="replace")
        raise subprocess.SubprocessError(f"no verdict on {mutant.name}:\n{text}") from None
    if catch is None:
        return Verdict(mutant, "", seconds)
    return Verdict(mutant, f"{catch['where']}: {catch['problem']}", catch["seconds"])


def _report(verdicts: Sequence[Verdict]) -> int:
    survivors = [verdict.mutant for verdict in verdicts if not verdict.caught]
    caught = len(verdicts) - len(survivors)
    slowest = max((verdict.seconds for verdict in verdicts if verdict.caught), default=0.0)
    print(f"\n{caught} of {len(verdicts)} caught, the slowest after {slowest:.1f} s of CPU time")
    for mutant in survivors:
        print(f"  {mutant.name} survives: {mutant.survives or f'UNEXPECTED ({mutant.mistake})'}")
    for verdict in verdicts:
        if verdict.caught and verdict.mutant.survives:
            print(f"  {verdict.mutant.name} was thought to survive: {verdict.mutant.survives}")
    unexpected = any(not mutant.survives for mutant in survivors)
    return 1 if unexpected or caught < math.ceil(ENOUGH_CAUGHT * len(verdicts)) else 0
