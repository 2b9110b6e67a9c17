"""Play the known races on our scheduler and on the control group, and print what comes of them.

A race bites if the control fails in at least one interleaving; ours has to pass in all of them. The exit status is 1 if
ours fails anywhere, or if the control passes what is known of its code and nobody has said why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulations.control import GO, GO_OLD
from simulations.corpus import CASES, NOT_HERE, Case, Known
from simulations.scenarios import play
from simulations.world.system import OURS, System

__all__ = ["Verdict", "arguments", "has_to_fail", "main", "markdown", "verdict"]

SEEDS: Final = ("S000", "S003")
"""The Go code that the control follows."""
SHOWN: Final = 100
"""Letters of a reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case on one scheduler."""

    played: int
    """Interleavings; the last of them failed, if one did."""
    schedule: int | None = None
    """The first interleaving that failed."""
    reason: str = ""

    @property
    def passes(self) -> bool:
        return self.schedule is None

    def __str__(self) -> str:
        return f"passes {self.played}" if self.passes else f"fails at {self.schedule}: {self.reason}"


def verdict(case: Case, system: System) -> Verdict:
    """Play a case until it fails, or through."""
    for played, schedule in enumerate(case.schedules, 1):
        run = play(case.scenario, schedule=schedule, system=system)
        try:
            problems = case.judge(run)
        except Exception as error:  # not even what the judgement is about is there
            problems = [*run.broken, repr(error)]
        if problems:
            return Verdict(played, schedule, problems[0])
    return Verdict(len(case.schedules))


def control_of(case: Case) -> System:
    return GO_OLD if case.older else GO


def has_to_fail(case: Case) -> bool:
    """Whether it is known from the code that the control follows."""
    return Known.CODE in case.known and any(seed in source for source in case.source for seed in SEEDS)


HEADING: Final = """\
# Known races, played

Each row is a scenario: the control is a model of Ollama's scheduler (the *older* one where it says so), ours is the
real scheduler. "fails at 3" names the first interleaving in which it fails; [races.md](races.md) explains the entries,
[simulation.md](simulation.md) how it is done.
Made by `python -m simulations corpus --markdown docs/corpus.md`.

"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="ENTRY", help="such as R38, with all its scenarios, or R38-b")
    parser.add_argument("--only", choices=("ours", "control"), help="play one of the two schedulers")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")


def main(options: argparse.Namespace) -> int:
    cases = _named(options.names)
    if not cases:
        print(f"no known race is called {' or '.join(options.names)}", file=sys.stderr)
        return 2
    rows: list[tuple[Case, Verdict | None, Verdict | None]] = []
    wrong: list[str] = []
    for case in cases:
        ours = verdict(case, OURS) if options.only != "control" else None
        control = verdict(case, control_of(case)) if options.only != "ours" else None
        rows.append((case, control, ours))
        wrong += _wrong(case, control, ours)
        _print(case, control, ours)
    listed = {entry: where for entry, where in NOT_HERE.items() if not options.names or entry in options.names}
    for entry, where in listed.items():
        print(f"{entry:6} elsewhere: {where}")
    if options.markdown is not None:
        options.markdown.write_text(HEADING + markdown(rows, listed), encoding="utf-8")
    bites = sum(control is not None and not control.passes for _, control, _ in rows)
    print(f"\n{len(rows)} scenarios, {bites} of them fail on the control; {len(wrong)} are not as they should be")
    for line in wrong:
        print(f"  {line}")
    return 1 if wrong else 0


def _named(names: Sequence[str]) -> list[Case]:
    return [case for entry, case in CASES.items() if not names or entry in names or entry.partition("-")[0] in names]


def _wrong(case: Case, control: Verdict | None, ours: Verdict | None) -> Iterator[str]:
    if ours is not None and not ours.passes:
        yield f"{case.entry}: ours {ours}"
    if control is not None:
        if control.passes and has_to_fail(case) and not case.control_passes:
            yield f"{case.entry}: the control passes, and its code is known to be wrong"
        if not control.passes and case.control_passes:
            yield f"{case.entry}: the control {control}, although it is said to pass: {case.control_passes}"


def _of_control(case: Case, control: Verdict, most: int) -> str:
    if control.passes:
        return f"passes: {case.control_passes}" if case.control_passes else "passes"
    text = str(control)
    return text if len(text) <= most else f"{text[:most]} ..."


def _print(case: Case, control: Verdict | None, ours: Verdict | None) -> None:
    print(f"{case.entry:6} {case.title}  [{', '.join(case.source)}]")
    if control is not None:
        print(f"       {control_of(case).name}: {_of_control(case, control, SHOWN)}")
    if ours is not None:
        print(f"       ours: {ours}", flush=True)


def markdown(rows: Sequence[tuple[Case, Verdict | None, Verdict | None]], elsewhere: Mapping[str, str]) -> str:
    """The table, and the entries that are tested elsewhere."""
    lines = [
        "| race | what goes wrong | known from | control | ours |",
        "|---|---|---|---|---|",
    ]
    for case, control, ours in rows:
        told = "-" if control is None else _of_control(case, control, 2 * SHOWN).replace("|", "/")
        cells = (case.entry, case.title, ", ".join(case.source), told, "-" if ours is None else str(ours))
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| race | what of it is not here, and where it is tested |", "|---|---|"]
    lines += [f"| {entry} | {where} |" for entry, where in elsewhere.items()]
    return "\n".join([*lines, ""])
