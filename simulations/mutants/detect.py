"""Look for anything wrong with the scheduler of this process, and stop at the first.

Known races, random workloads in two kinds of interleaving, cancellations at every step and seeds of the pure fleet take
turns, so that each kind of fault meets the kind of run that shows it soon. The order is always the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from time import process_time
from typing import Final

from simulations.explore.moments import disturbed
from simulations.explore.sweep import cancels, ends, pairs, problems
from simulations.fleet.decisions import Violation
from simulations.fleet.playback import play as play_fleet
from simulations.scenarios import Request, Scenario
from simulations.scenarios.seeds import Spot, find
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

__all__ = ["BUDGET", "Catch", "hunt"]

BUDGET: Final = 60.0
"""Seconds of CPU time for one mutant."""
ENOUGH: Final = 20.0
"""Seconds of CPU time more in which the last run has to end; then the process is ended by force."""

Look = tuple[str, Sequence[str]]
"""Which run, and what is wrong with it."""

SWEPT: Final = (
    Scenario(requests=(Request(), Request(at=0.5), Request(at=2.005, inputs=2, tokens=0, slot=False))),
    Scenario(
        models={"a": 16, "b": 16},
        usual=Behaviour(settle_time=0.3),
        requests=(Request(hold=1), Request(model="b", at=2.1), Request(at=2.2), Request(model="b", at=2.3)),
    ),
    Scenario(
        gpus=(24, 24),
        models={"a": 16, "b": 16, "wide": 30},
        policy=Policy(num_parallel=2, overtakes=1),
        requests=(Request(), Request(model="b"), Request(model="wide", at=2.03), Request(at=2.05), Request(at=2.05)),
    ),
)
"""Few clients, so that every step of every one can be met."""


@dataclass(frozen=True, slots=True)
class Catch:
    where: str
    """Which run."""
    problem: str
    """What was wrong with it."""
    runs: int
    seconds: float
    """Of CPU time."""


def hunt(seconds: float = BUDGET) -> Catch | None:
    """The first thing that is wrong; None if nothing was found in that many seconds of CPU time."""
    began = process_time()
    for runs, (where, wrong) in enumerate(_looks(), 1):
        if wrong:
            return Catch(where, wrong[0], runs, process_time() - began)
        if process_time() - began >= seconds:
            break
    return None


def _looks() -> Iterator[Look]:
    turns = [_known_races(), _workloads(), _workloads(1), _sweeps(), _workloads(2), _workloads(3), _fleets()]
    while turns:
        for source in tuple(turns):
            look = next(source, None)
            if look is None:
                turns.remove(source)
            else:
                yield look


def _known_races() -> Iterator[Look]:
    """First all of them in one interleaving, then in the next."""
    from simulations.corpus import CASES  # whoever only asks for the budget does without them

    longest = max((len(case.schedules) for case in CASES.values()), default=0)
    for number in range(longest):
        for name, case in CASES.items():
            if number < len(case.schedules):
                spot = Spot(name, case.scenario, case.schedules[number])
                yield spot.text, case.judge(spot.play())


def _workloads(first: int = 0) -> Iterator[Look]:
    """Every fourth seed, in the two kinds of order by turns."""
    for seed in count(first, 4):
        spot = find(f"{seed}:{seed}:pct" if seed // 4 % 2 else str(seed))
        yield spot.text, spot.play().broken


def _sweeps() -> Iterator[Look]:
    for number, scenario in enumerate(SWEPT):
        for moments in chain(cancels(scenario), ends(scenario), pairs(scenario, 200)):
            where = ",".join(map(str, moments))
            yield f"sweep {number} at {where}", tuple(problems(disturbed(scenario, *moments)))


def _fleets() -> Iterator[Look]:
    for seed in count():
        error = play_fleet(seed).error
        yield f"fleet {seed}", [] if error is None else [str(error) if isinstance(error, Violation) else repr(error)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulations.mutants.detect", description=__doc__)
    parser.add_argument("--seconds", type=float, default=BUDGET, help=f"of CPU time (default: {BUDGET:g})")
    options = parser.parse_args()
    limit = round(process_time() + options.seconds + ENOUGH)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    catch = hunt(options.seconds)
    print(json.dumps(None if catch is None else asdict(catch)))
    return 0 if catch is None else 1


if __name__ == "__main__":
    sys.exit(main())
