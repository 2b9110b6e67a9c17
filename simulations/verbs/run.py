"""Play many random scenarios on the real scheduler, with every rule checked; say what they did and what broke.

A seed makes a scenario: machine, models, clients, faults. Each is played in one or more interleavings. Returns 1 if a
rule did not hold anywhere, after a line for each such run that plays it again.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter
from typing import Final

from simulations.explore.many import play_all, texts
from simulations.scenarios.report import Report
from simulations.scenarios.seeds import ORDERS, SHUFFLE
from simulations.scenarios.workloads import KINDS

__all__ = ["arguments", "main"]

SEEDS: Final = (0, 2400)
NAMES: Final = {name.replace(" ", "-"): name for name in KINDS}
PROGRESS: Final = 2.0
"""Seconds between two lines of progress."""


def arguments(parser: argparse.ArgumentParser) -> None:
    spots(parser, SEEDS)
    parser.add_argument("--kind", choices=NAMES, metavar="KIND", help=f"only scenarios of a kind: {', '.join(NAMES)}")
    parser.add_argument("--limit-seconds", type=float, metavar="SECONDS", help="start no further run after this time")
    parser.add_argument("--long", action="store_true", help="never stop at BEYOND: for a night, with --limit-seconds")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="play in that many processes (default: 1)")
    parser.add_argument("--hashes", action="store_true", help="print the hash of each run's trace, too")
    parser.add_argument("--goals", action="store_true", help="it is a failure if a goal was never reached")


def spots(parser: argparse.ArgumentParser, seeds: tuple[int, int]) -> None:
    """Options for a range of runs."""
    default = f"these scenarios (default: {seeds[0]} {seeds[1]})"
    parser.add_argument("--seeds", type=int, nargs=2, default=seeds, metavar=("FIRST", "BEYOND"), help=default)
    parser.add_argument("--schedules", type=int, default=1, metavar="N", help="interleavings of each (default: 1)")
    parser.add_argument(
        "--order",
        choices=[*ORDERS, "both"],
        default=SHUFFLE,
        help="how interleavings are made: tasks shuffled (default), or by random priorities with few changes",
    )


def orders(options: argparse.Namespace) -> list[str]:
    return list(ORDERS) if options.order == "both" else [options.order]


def main(options: argparse.Namespace) -> int:
    report = Report()
    kind = NAMES.get(options.kind)
    seeds = options.seeds[:1] if options.long else options.seeds
    began = said = perf_counter()
    for result in play_all(
        texts(seeds, options.schedules, orders(options), kind), jobs=options.jobs, hashed=options.hashes
    ):
        report.add(result)
        if options.hashes:
            print(f"{result.spot} {result.digest}", flush=True)
        now = perf_counter()
        late = options.limit_seconds is not None and now - began >= options.limit_seconds
        if now - said >= PROGRESS or late:
            said = now
            failing = f", {len(report.failures)} failing" if report.failures else ""
            print(f"{report.runs} runs, {report.runs / (now - began):.1f}/s{failing}", file=sys.stderr)
        if late:
            break
    print(report.text(perf_counter() - began))
    print(*report.failure_lines(), sep="\n", end="\n" if report.failures else "")
    return 1 if report.failures or (options.goals and report.missed) else 0
