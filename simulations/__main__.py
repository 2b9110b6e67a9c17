"""The real scheduler in a simulated world, from the command line: `python -m simulations VERB --help`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from . import verbs

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulations", description=__doc__)
    choices = parser.add_subparsers(required=True, metavar="VERB")
    for found in iter_modules(verbs.__path__):
        verb = import_module(f"{verbs.__name__}.{found.name}")
        text = (verb.__doc__ or "").strip()
        made = choices.add_parser(found.name.replace("_", "-"), help=text.splitlines()[0], description=text)
        verb.arguments(made)
        made.set_defaults(verb=verb.main)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    result: int = options.verb(options)
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
