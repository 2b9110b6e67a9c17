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
from itertools import chain, count, zip_longest
from time import process_time
from typing import Final

from simulations.explore.moments import disturbed
from simulations.explore.sweep import cancels, cancels_at_the_end, ends, pairs, problems
from simulations.fleet.decisions import Violation
from simulations.fleet.playback import play as play_fleet
from simulations.scenarios import Fault, Request, Scenario, What
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
    Scenario(
        models={"a": 16, "b": 16},
        requests=(Request(at=1), Request(model="b", at=1), Request(at=1.1), Request(model="c", at=9)),
        faults=(Fault(at=0.5, what=What.QUERY_TIME, amount=0.2),),
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
    races, sweeps = _known_races(), [_sweep(number) for number in range(len(SWEPT))]
    turns = [_aimed(), races, _workloads(), *sweeps, races, _fleets(), *sweeps]
    while turns:
        for source in tuple(turns):
            look = next(source, None)
            if look is None:
                turns = [other for other in turns if other is not source]
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


def _aimed() -> Iterator[Look]:
    from .aimed import AIMED

    for schedule in range(5):
        for aimed in AIMED:
            yield aimed.name, aimed.problems(schedule)


def _workloads() -> Iterator[Look]:
    """In the two kinds of order by turns."""
    for seed in count():
        spot = find(f"{seed}:{seed}:pct" if seed % 5 % 2 else str(seed))
        yield spot.text, spot.play().broken


def _sweep(number: int) -> Iterator[Look]:
    """Ends of the server and departures of clients, by turns."""
    spot = Spot(f"sweep {number}", SWEPT[number])
    before = spot.play()
    yield spot.text, before.broken
    plans = [ends(spot), cancels(spot), pairs(spot, 300), cancels_at_the_end(spot, 300)]
    for moments in chain.from_iterable(zip_longest(*plans)):
        if moments is not None:
            where = ",".join(map(str, moments))
            yield f"{spot.name} at {where}", tuple(problems(disturbed(spot, *moments), before))


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
