"""Play each run twice here and once in a process with another PYTHONHASHSEED; stop at the first difference (I27).

Returns 1 after a difference, with the line on which the traces part.
"""

from __future__ import annotations

import argparse
from typing import Final

from simulations.divergence import Divergence, first_divergence
from simulations.explore.many import texts
from simulations.scenarios.seeds import find

from .run import orders, spots

__all__ = ["arguments", "main"]

COMMAND: Final = ("-m", "simulations")


def arguments(parser: argparse.ArgumentParser) -> None:
    spots(parser, (0, 100))


def main(options: argparse.Namespace) -> int:
    first, beyond = options.seeds
    runs = [find(text).text for text in texts(options.seeds, options.schedules, orders(options))]
    hashes = ("--hashes", "--seeds", str(first), str(beyond), "--schedules", str(options.schedules))
    same = 0
    for result in first_divergence(
        runs,
        _trace,
        hashes=(*COMMAND, "run", *hashes, "--order", options.order),
        replay=lambda run: (*COMMAND, "replay", run),
    ):
        if isinstance(result, Divergence):
            print(result)
            return 1
        same += 1
    print(f"{same} runs: the same trace twice in this process and once in a process with other hashes")
    return 0


def _trace(text: str) -> list[str]:
    run = find(text).play()
    return [*run.trace, *(f"BROKEN {problem}" for problem in run.broken), run.digest]
