"""Draw a run as a picture: memory, runners and requests over time, as an SVG.

On the real scheduler, on the control group (a model of the Go scheduler), or on both, one above the other.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from simulations.corpus.case import Case
from simulations.picture.picture import draw
from simulations.picture.story import Story
from simulations.scenarios.history import History
from simulations.scenarios.seeds import Spot, find
from simulations.world.system import OURS, System

__all__ = ["arguments", "main", "picture"]

HEADINGS = {"ours": "trio-ollama", "control": "Control: a model of Ollama's scheduler"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spot", metavar="SPOT", type=find, help="which run: 17, 17:3, R38, R38:2:pct")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.svg")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--system", choices=list(HEADINGS), default="ours", help="whose run (default: ours)")
    which.add_argument("--both", action="store_true", help="the control above, ours below it")
    parser.add_argument("--until", type=float, metavar="SECONDS", help="end the picture at this simulated time")


def main(options: argparse.Namespace) -> int:
    """0 whatever happened in the run: its picture says so."""
    systems = ("control", "ours") if options.both else (options.system,)
    options.output.write_text(picture(options.spot, systems, until=options.until), encoding="utf-8")
    print(f"{options.output}: {options.spot.text} on {' and '.join(systems)}")
    return 0


def picture(spot: Spot, systems: tuple[str, ...] = ("ours",), *, until: float | None = None) -> str:
    """The SVG of a run on each of `systems`, one above the other."""
    return draw(_title(spot), [_story(spot, name) for name in systems], until=until)


def _story(spot: Spot, name: str) -> Story:
    history = History()
    run = spot.play(system=_system(name), interfere=history.begin, instruments=[history])
    case = _case(spot)
    return history.story(run, heading=HEADINGS[name], problems=run.broken if case is None else case.judge(run))


def _system(name: str) -> System:
    if name == "ours":
        return OURS
    from simulations.control import GO  # only where it is wanted

    return GO


def _case(spot: Spot) -> Case | None:
    """The known race that a run is of."""
    if spot.name.isdecimal():
        return None
    from simulations.corpus import CASES

    return CASES[spot.name]


def _title(spot: Spot) -> str:
    case = _case(spot)
    if case is not None:
        return f"{spot.text}: {case.title}"
    return f"Seed {spot.text}: {spot.scenario.name.removesuffix(spot.name).strip()}"
