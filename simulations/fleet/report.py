"""What many seeds did, summed up: the table that `run` prints."""

from __future__ import annotations

import shlex
from collections import Counter

from simulations.figures import long_time, rows
from trio_ollama.scheduler.core.lifecycle import TRANSITIONS, Event, State

from .decisions import Violation
from .playback import Playback
from .workloads import S

__all__ = ["Report"]


class Report:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reached: Counter[tuple[State, Event]] = Counter()
        self.failures: list[Playback] = []
        self.simulated = 0
        """Nanoseconds."""

    def add(self, played: Playback) -> None:
        self.simulated += played.now
        self.reached += played.fleet.reached
        self.counts += Counter(
            {
                "seeds": 1,
                "requests": len(played.requests),
                "loads": played.stats["StartLoad"],
                "evictions": played.evictions,
                "cancels": played.stats["cancelled"],
                "crashes": played.crashes,
                "steps": played.checks.steps,
            }
        )
        if played.error is not None:
            self.failures.append(played)

    def missing(self) -> list[tuple[State, Event]]:
        """Rows of the lifecycle table that no seed has used."""
        return [pair for pair in TRANSITIONS if not self.reached[pair]]

    def table(self, seconds: float) -> str:
        """One row per figure; `seconds` is what it took on the wall's clock."""
        reached = len(TRANSITIONS) - len(self.missing())
        figures = [
            ("seeds", f"{self.counts['seeds']:,}"),
            ("failing seeds", f"{len(self.failures):,}"),
            ("seeds/s", f"{self.counts['seeds'] / max(seconds, 1e-9):.1f}"),
            ("simulated time", long_time(self.simulated // S)),
            *((what, f"{self.counts[what]:,}") for what in ("requests", "loads", "evictions", "cancels", "crashes")),
            ("steps checked", f"{self.counts['steps']:,}"),
            ("(state, event) pairs", f"{reached} of {len(TRANSITIONS)}"),
        ]
        lines = rows(figures)
        lines += [f"    never: {state} / {event}" for state, event in self.missing()]
        return "\n".join(lines)

    def failure_lines(self) -> list[str]:
        """Two lines for each failing seed: what broke, and the command that shows it again."""
        lines = []
        for played in self.failures:
            error = played.error
            text = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
            where = f"seed {played.seed} ({played.work.kind}) at {played.now / S:.3f} s"
            lines += [
                f"FAILED {where}: {text}",
                "    " + shlex.join(("python", "-m", "simulations.fleet", "replay", str(played.seed))),
            ]
        return lines
