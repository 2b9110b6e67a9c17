"""Make a failing run as small as it will go, and write it down as a test.

SPOT names a run (`17`, `17:3:pct`, `R38:4`); a file with a SCENARIO, such as a test that was written here, will do as
well. `--at` names the steps at which somebody leaves, as `sweep` tells them. Without a SPOT, seeds are searched for a
run that fails. Break the scheduler in one line, and see.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from time import monotonic
from typing import Final

from simulations.explore.failing import had
from simulations.explore.failing_test import failing_test
from simulations.explore.moments import Moment
from simulations.explore.shrink import SECONDS, Shrunk, shrink
from simulations.explore.simpler import size
from simulations.mutants.catalogue import MUTANTS
from simulations.mutants.plant import command
from simulations.scenarios import Scenario
from simulations.scenarios.scenario import spell
from simulations.scenarios.seeds import Spot, UnknownSpotError, find

__all__ = ["arguments", "main"]

SEARCH: Final = 30.0
"""Seconds."""
PROGRESS: Final = 1.0
"""Seconds between two lines."""
TRACE: Final = 60
"""Lines that are shown."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spot", nargs="?", metavar="SPOT|FILE", help="what fails (default: search for it)")
    parser.add_argument("--at", metavar="MOMENT[,MOMENT]", help="disturbed there: 2:racing:17,end:between:40")
    parser.add_argument(
        "--mutant", metavar="NAME", help="plant this fault in the scheduler first (see `mutants --list`)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="test_x.py", help="write the test to this file")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"to shrink for, at most (default: {SECONDS:g})")
    parser.add_argument(
        "--search", type=float, default=SEARCH, metavar="SECONDS", help=f"to search for, at most (default: {SEARCH:g})"
    )


def main(options: argparse.Namespace) -> int:
    """0 if a failing run was found and made smaller; 1 if none fails; 2 if there is no such run."""
    if options.mutant is not None:
        return _with_mutant(options)
    try:
        spot = _search(options.search) if options.spot is None else _spot(options.spot)
        moments = _moments(options.at, spot)
    except (ValueError, OSError, KeyError) as error:
        print(f"no run: {error}", file=sys.stderr)
        return 2
    if spot is None:
        print(f"no rule was broken within {options.search:g} s", file=sys.stderr)
        return 1
    failing = had(spot, moments)
    if not failing.wrong:
        print(f"{failing.text} breaks no rule", file=sys.stderr)
        return 1
    _say(f"{failing.text} breaks {failing.wrong[0]}")
    _say(f"   {size(spot.scenario)}")
    shrunk = shrink(spot, moments, seconds=options.seconds, say=_Progress())
    _show(shrunk)
    if options.output is not None:
        options.output.write_text(failing_test(shrunk.failing), encoding="utf-8")
        print(f"\n{options.output}: run it with python -m pytest {options.output}")
    return 0


def _with_mutant(options: argparse.Namespace) -> int:
    """The same in a process in which the fault can still be planted."""
    if options.mutant not in MUTANTS:
        print(f"there is no mutant {options.mutant}; `mutants --list` says which there are", file=sys.stderr)
        return 2
    _say(f"with {options.mutant}: {MUTANTS[options.mutant].mistake}")
    again = [*([options.spot] if options.spot is not None else []), "--seconds", str(options.seconds)]
    again += ["--search", str(options.search)]
    again += ["--at", options.at] if options.at is not None else []
    again += ["-o", str(options.output)] if options.output is not None else []
    return subprocess.run(command(options.mutant, "simulations", "shrink", *again), check=False).returncode


def _moments(text: str | None, spot: Spot | None) -> tuple[Moment, ...]:
    if text is None:
        return ()
    moments = tuple(map(Moment.parse, text.split(",")))
    there = 0 if spot is None else len(spot.scenario.requests)
    if any(isinstance(moment.target, int) and not 1 <= moment.target <= there for moment in moments):
        raise UnknownSpotError(f"there is no such client as in {text}")
    return moments


def _spot(text: str) -> Spot:
    """A run by its name, or the scenario of a Python file."""
    path = Path(text)
    if path.suffix != ".py":
        return find(text)
    scenario = runpy.run_path(text)["SCENARIO"]
    if not isinstance(scenario, Scenario):
        raise UnknownSpotError(f"{text} has no Scenario named SCENARIO")
    tried = (Spot(path.stem, scenario, schedule, order) for order in ("shuffle", "pct") for schedule in range(100))
    return next((spot for spot in tried if spot.play().broken), Spot(path.stem, scenario))


def _search(seconds: float) -> Spot | None:
    """The first failing run of all seeds, each in two kinds of order."""
    until = monotonic() + seconds
    for spot in chain.from_iterable(map(_of_seed, count())):
        if spot.play().broken:
            return spot
        if monotonic() >= until:
            break
    return None


def _of_seed(seed: int) -> Iterator[Spot]:
    yield find(str(seed))
    yield find(f"{seed}:{seed}:pct")


class _Progress:
    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, shrunk: Shrunk) -> None:
        if shrunk.seconds >= self._next:
            self._next = shrunk.seconds + PROGRESS
            _say(f"{shrunk.seconds:5.1f} s, {shrunk.runs:5} runs: {size(shrunk.spot.scenario)}")


def _show(shrunk: Shrunk) -> None:
    spot, run = shrunk.spot, shrunk.failing.run
    end = "nothing more can go" if shrunk.done else "the time is over"
    _say(f"{shrunk.seconds:5.1f} s, {shrunk.runs:5} runs: {size(spot.scenario)}; {end}")
    print(spell(spot.scenario))
    at = "".join(f", at {moment}" for moment in shrunk.failing.moments)
    print(f"interleaving {spot.schedule} ({spot.order}){at}\n")
    print(*run.trace[-TRACE:], sep="\n")
    print("", *shrunk.failing.wrong[:3], sep="\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
