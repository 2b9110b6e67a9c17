"""What many runs did, summed up: the text that `run` prints."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from time import process_time
from typing import Final

from simulations.figures import long_time, rows
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import TRANSITIONS, Event, State

from .goals import Goal
from .reached import reached
from .run import Run
from .seeds import Spot

__all__ = ["Report", "Result", "play_and_judge"]

UNREACHABLE: Final = {
    (State.SPAWNING, Event.EXITED): "a process is started, and told of, in one step",
    (State.STOPPING, Event.SPAWNED): "whether a load was given up is looked at in the step that starts its process",
    (State.DRAINING, Event.DRAIN): "whoever drains a runner asks first whether it is ready",
}
"""Rows of the lifecycle table that no world comes to, and why: they are there for those who change the supervisor."""
EVICTIONS = (Because.EVICTED_FOR, Because.RELOAD_FOR)


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a run; small, as it may come from another process."""

    spot: str
    scenario: str
    broken: tuple[str, ...]
    digest: str
    simulated: float
    """Seconds until the last client had ended."""
    cpu: float
    """Seconds of a core that it took."""
    counts: Counter[str]
    injected: Counter[str]
    """Faults that struck, by kind."""
    pairs: Counter[object]
    """Rows of the lifecycle table."""
    goals: frozenset[Goal]


def play_and_judge(spot: Spot, *, hashed: bool = False) -> Result:
    """Play it; whatever is raised is a failure of that run, too. `hashed`: the result has the trace's hash."""
    began = process_time()
    goals: frozenset[Goal] = frozenset()
    run = Run(spot.scenario, spot.schedule, "ours")
    try:
        run = spot.play()
        goals = reached(run)
    except Exception as error:
        run.broken.append(f"{type(error).__name__}: {error}")
    return Result(
        spot.text,
        spot.scenario.name,
        tuple(run.broken),
        run.digest if hashed else "",
        max((client.ended_at or 0 for client in run.clients), default=0),
        process_time() - began,
        _counts(run),
        run.injected,
        run.reached,
        goals,
    )


def _counts(run: Run) -> Counter[str]:
    events = run.events
    return Counter(
        {
            "requests": len(run.clients),
            "loads": sum(isinstance(event, ev.LoadStarted) for event in events),
            "evictions": sum(isinstance(event, ev.DrainStarted) and event.because in EVICTIONS for event in events),
            "cancels": sum(client.outcome == "cancelled" for client in run.clients),
            "crashes": sum(process.exited is not None and process.exited.code > 0 for process in run.processes),
            "steps": run.steps,
        }
    )


class Report:
    def __init__(self) -> None:
        self.runs = 0
        self.simulated = 0.0
        self.cpu = 0.0
        self.counts: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.pairs: Counter[object] = Counter()
        self.goals: Counter[Goal] = Counter()
        """In how many runs each was reached."""
        self.failures: list[Result] = []

    def add(self, result: Result) -> None:
        self.runs += 1
        self.simulated += result.simulated
        self.cpu += result.cpu
        self.counts += result.counts
        self.injected += result.injected
        self.pairs += result.pairs
        self.goals.update(result.goals)
        if result.broken:
            self.failures.append(result)

    @property
    def missed(self) -> list[Goal]:
        """Situations that no run came into."""
        return [goal for goal in Goal if not self.goals[goal]]

    def text(self, seconds: float) -> str:
        """`seconds` is what it took on the wall's clock."""
        never = [pair for pair in TRANSITIONS if not self.pairs[pair]]
        figures = [
            ("runs", f"{self.runs:,}"),
            ("failing runs", f"{len(self.failures):,}"),
            ("runs/s", f"{self.runs / max(seconds, 1e-9):.1f}"),
            ("runs/s/core", f"{self.runs / max(self.cpu, 1e-9):.1f}"),
            ("simulated time", long_time(self.simulated)),
            *((what, f"{self.counts[what]:,}") for what in ("requests", "loads", "evictions", "cancels", "crashes")),
            ("steps of tasks", f"{self.counts['steps']:,}"),
            ("faults injected", f"{self.injected.total():,}"),
            ("(state, event) pairs", f"{len(TRANSITIONS) - len(never)} of {len(TRANSITIONS)}"),
            ("goals", f"{len(Goal) - len(self.missed)} of {len(Goal)}"),
        ]
        lines = rows(figures)
        lines += [f"    never: {state} / {event}{_why(state, event)}" for state, event in never]
        lines += ["Faults:", *rows([(what, f"{count:,}") for what, count in sorted(self.injected.items())])]
        # A situation that few runs come into is one that fewer runs miss.
        lines += ["Goals, by runs that reached them:"]
        lines += [f"  {count:>9,}  {goal}" for goal, count in self.goals.most_common()]
        lines += [f"      never  {goal}" for goal in self.missed]
        return "\n".join(lines)

    def failure_lines(self) -> list[str]:
        """Two lines for each failing run: what broke first, and the command that shows it again."""
        return [
            line
            for result in self.failures
            for line in (
                f"FAILED {result.spot} ({result.scenario}): {result.broken[0]}",
                "    " + shlex.join(("python", "-m", "simulations", "replay", result.spot)),
            )
        ]


def _why(state: State, event: Event) -> str:
    why = UNREACHABLE.get((state, event))
    return "" if why is None else f": no world can, {why}"
