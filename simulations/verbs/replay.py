"""Show one run, line by line: what the scheduler, its processes and its clients did. The trace's hash comes last.

Returns 1 if a rule did not hold in it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from hashlib import sha256

import trio
import trio.abc

from simulations.fleet.trace import line
from simulations.scenarios.seeds import find
from simulations.world.world import World
from trio_ollama.scheduler.core.decisions import Decision

__all__ = ["arguments", "main"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spot", metavar="SPOT", type=find, help="which run: 17, 17:3, 17:3:pct, R38")
    parser.add_argument("--until", type=float, default=math.inf, metavar="SECONDS", help="up to this simulated time")
    parser.add_argument(
        "--verbose", action="store_true", help="show the planner's decisions and all steps of tasks, too"
    )


def main(options: argparse.Namespace) -> int:
    details = _Details()
    watching = {"interfere": details.listen, "instruments": [details]} if options.verbose else {}
    run = options.spot.play(**watching)
    shown = [text for text in run.trace if _when(text) <= options.until]
    for text in details.between(shown):
        if _when(text) <= options.until:
            print(text)
    for problem in run.broken:
        print(f"BROKEN {problem}")
    print(sha256("\n".join(shown).encode()).hexdigest())
    return 1 if run.broken else 0


def _when(text: str) -> float:
    """The instant of a line of a trace."""
    return float(text.split(None, 1)[0])


class _Details(trio.abc.Instrument):
    """What is no part of a trace, because a change of it changes nothing that anybody could see."""

    def __init__(self) -> None:
        self._found: list[tuple[int, str]] = []
        """Lines, and how many of the trace came before them."""
        self._world: World | None = None

    def listen(self, world: World) -> None:
        self._world = world
        planner = world.scheduler.fleet._planner
        apply = planner.apply

        def applying(decisions: Sequence[Decision]) -> None:
            for decision in decisions:
                self._note(line(decision))
            apply(decisions)

        planner.apply = applying  # type: ignore[method-assign]

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._note(f"step of {task.name}")

    def _note(self, text: str) -> None:
        if self._world is not None:
            self._found.append((len(self._world.trace), f"{trio.current_time():10.3f}     {text}"))

    def between(self, trace: Sequence[str]) -> Iterator[str]:
        """The trace with the details where they belong."""
        found = iter(self._found)
        position, detail = next(found, (math.inf, ""))
        for number, text in enumerate(trace):
            while position <= number:
                yield detail
                position, detail = next(found, (math.inf, ""))
            yield text
        if position < math.inf:
            yield detail
        yield from (text for _, text in found)
