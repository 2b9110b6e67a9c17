"""Simulated fleets from the command line: `python -m simulations.fleet VERB --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from time import perf_counter

from .divergence import Divergence, first_divergence
from .playback import play
from .report import Report
from .workloads import KINDS

__all__ = ["main"]

PROGRESS = 2.0
"""Seconds between two lines of progress."""


def run(options: argparse.Namespace) -> int:
    """Play many seeds with all rules checked after every step; say what they did and which broke a rule."""
    kinds = list(KINDS)
    seeds = [
        seed
        for seed in range(*options.seeds)
        if options.kind is None or kinds[seed % len(kinds)].replace(" ", "-") == options.kind
    ]
    report = Report()
    began = said = perf_counter()
    for number, seed in enumerate(seeds, 1):
        played = play(seed)
        report.add(played)
        if options.hashes:
            print(f"seed {seed} {played.digest}", flush=True)
        now = perf_counter()
        late = options.limit_seconds is not None and now - began >= options.limit_seconds
        if now - said >= PROGRESS or late or number == len(seeds):
            said = now
            failing = f", {len(report.failures)} failing" if report.failures else ""
            print(f"{number}/{len(seeds)} seeds, {number / (now - began):.1f}/s{failing}", file=sys.stderr)
        if late:
            break
    print(report.table(perf_counter() - began))
    print(*report.failure_lines(), sep="\n", end="\n" if report.failures else "")
    return 1 if report.failures else 0


def replay(options: argparse.Namespace) -> int:
    """Show what happened in a seed, line by line; the hash of the trace comes last."""

    def show(line: str, detail: bool) -> None:
        if options.verbose or not detail:
            print(line)

    played = play(options.seed, until=options.until, each_line=show)
    print(played.digest)
    return 1 if played.error is not None else 0


def check_determinism(options: argparse.Namespace) -> int:
    """Play each seed twice here and once in a process with another PYTHONHASHSEED; stop at the first difference."""
    same = 0
    for result in first_divergence(range(*options.seeds)):
        if isinstance(result, Divergence):
            print(result)
            return 1
        same += 1
    print(f"{same} seeds: the same trace twice in this process and once in a process with other hashes")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulations.fleet", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(function: object, name: str) -> argparse.ArgumentParser:
        text = (function.__doc__ or "").strip()
        made = verbs.add_parser(name, help=text, description=text)
        made.set_defaults(verb=function)
        return made

    def seeds(parser: argparse.ArgumentParser, beyond: int) -> None:
        what = f"these seeds (default: 0 {beyond})"
        parser.add_argument("--seeds", type=int, nargs=2, default=(0, beyond), metavar=("FIRST", "BEYOND"), help=what)

    def one_seed(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("seed", type=int)
        parser.add_argument("--until", type=float, metavar="SECONDS", help="stop at this simulated time")

    run_verb = verb(run, "run")
    seeds(run_verb, 160)
    names = [name.replace(" ", "-") for name in KINDS]
    run_verb.add_argument(
        "--kind", choices=names, metavar="KIND", help=f"only workloads of one kind: {', '.join(names)}"
    )
    run_verb.add_argument(
        "--limit-seconds", type=float, metavar="SECONDS", help="start no further seed after this time"
    )
    run_verb.add_argument("--hashes", action="store_true", help="print the hash of each seed's trace, too")

    replay_verb = verb(replay, "replay")
    one_seed(replay_verb)
    replay_verb.add_argument("--verbose", action="store_true", help="show the scheduler's decisions, not only events")

    seeds(verb(check_determinism, "check-determinism"), 32)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    result: int = options.verb(options)
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
