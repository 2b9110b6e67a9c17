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
OLDER = "Control: a model of an older scheduler of Ollama"


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
    title, subtitle = _titles(spot)
    return draw(title, [_story(spot, name) for name in systems], subtitle=subtitle, until=until)


def _story(spot: Spot, name: str) -> Story:
    history = History()
    case = _case(spot)
    older = case is not None and case.older and name == "control"
    run = spot.play(system=_system(name, older=older), interfere=history.begin, instruments=[history])
    return history.story(
        run, heading=OLDER if older else HEADINGS[name], problems=run.broken if case is None else case.judge(run)
    )


def _system(name: str, *, older: bool) -> System:
    if name == "ours":
        return OURS
    from simulations.control import GO, GO_OLD  # only where it is wanted

    return GO_OLD if older else GO


def _case(spot: Spot) -> Case | None:
    """The known race that a run is of, if it is of one."""
    if spot.name.isdecimal():
        return None
    from simulations.corpus import CASES

    return CASES.get(spot.name)


def _titles(spot: Spot) -> tuple[str, str]:
    """What it is about, and what is special about it."""
    case = _case(spot)
    if case is None:
        kind = spot.scenario.name.removesuffix(spot.name).strip()
        return f"{'Seed ' if spot.name.isdecimal() else ''}{spot.text}{': ' if kind else ''}{kind}", ""
    from simulations.corpus import CASES

    entry = CASES.get(case.entry.partition("-")[0], case)
    return f"{spot.text}: {entry.title}", "" if entry is case else f"{case.entry}: {case.title}"
