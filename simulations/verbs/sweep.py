"""Disturb a scenario at every step there is: cancel a client at its k-th step, end the server after any.

Without options each client leaves at each of its steps, in three modes: blocked (inside the checkpoint), racing (woken,
together with what it is given) and between (any two steps of anybody). Nobody else may notice, and nothing may be left.
The exit status is 1 if there is a failure; each is told with the moments to have it again: `--at 2:racing:17`. `shrink`
takes the same words.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from itertools import chain

from simulations.explore.moments import Mode, Moment, disturbed
from simulations.explore.sweep import Moments, cancels, cancels_at_the_end, ends, pairs, problems, sample, sweep
from simulations.scenarios.seeds import Spot, UnknownSpotError, find

__all__ = ["arguments", "main"]

DRAWN = 500
"""How many combinations of two moments, if nobody says."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spots", nargs="+", metavar="SPOT", help="the scenario: 17, 17:3 or R38 (see `run`, `corpus`)")
    parser.add_argument("--client", type=int, action="append", default=[], metavar="N", help="only that one leaves")
    parser.add_argument("--mode", action="append", choices=[*Mode], help="only so")
    parser.add_argument("--shutdown", action="store_true", help="the server ends, or closes, after each step")
    parser.add_argument(
        "--pairs",
        type=int,
        nargs="?",
        const=DRAWN,
        metavar="N",
        help=f"two clients leave, at N pairs of steps ({DRAWN})",
    )
    parser.add_argument(
        "--both", type=int, nargs="?", const=DRAWN, metavar="N", help=f"the server ends, and a client leaves ({DRAWN})"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="at most N of all these moments, evenly spread")
    parser.add_argument("--at", metavar="MOMENT[,MOMENT]", help="one run, with its trace: 2:racing:17,end:between:40")
    parser.add_argument("--most", type=int, default=3, metavar="N", help="stop after so many failures (3)")


def main(options: argparse.Namespace) -> int:
    try:
        spots = [find(text) for text in options.spots]
        moments = tuple(Moment.parse(text) for text in options.at.split(",")) if options.at else ()
        for spot in spots:
            _check(spot, [*options.client, *(moment.target for moment in moments if isinstance(moment.target, int))])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    failures = sum(_one(spot, moments) if moments else _all(spot, options) for spot in spots)
    return 1 if failures else 0


def _check(spot: Spot, clients: list[int]) -> None:
    there = len(spot.scenario.requests)
    if wrong := [number for number in clients if not 1 <= number <= there]:
        raise UnknownSpotError(f"{spot.text} has clients 1 to {there}, not {', '.join(map(str, wrong))}")


def _all(spot: Spot, options: argparse.Namespace) -> int:
    began = time.perf_counter()
    result = sweep(spot, _plan(spot, options), most=options.most)
    took = time.perf_counter() - began
    for failure in result.failures:
        print(f"python -m simulations sweep {failure}\n")
    rate = result.runs / took
    print(f"{spot.text}: {result.runs} runs, {len(result.failures)} failures, {rate:.0f} runs/s", flush=True)
    return len(result.failures)


def _one(spot: Spot, moments: Moments) -> int:
    came = disturbed(spot, *moments)
    wrong = list(problems(came, spot.play()))
    print("\n".join([*came.run.trace, *wrong]))
    return len(wrong)


def _plan(spot: Spot, options: argparse.Namespace) -> Iterable[Moments]:
    modes = [Mode(mode) for mode in options.mode or Mode]
    parts = []
    if options.shutdown:
        parts.append(ends(spot))
    if options.pairs:
        parts.append(pairs(spot, options.pairs, modes))
    if options.both:
        parts.append(cancels_at_the_end(spot, options.both, modes))
    if options.client or not parts:
        parts.append(cancels(spot, options.client, modes))
    plan = chain.from_iterable(parts)
    return plan if options.sample is None else sample(plan, options.sample)
