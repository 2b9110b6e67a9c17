"""One known race, fault or bug as a scenario, with where it is known from and what has to come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from simulations.scenarios import Run, Scenario

__all__ = ["Case", "Known"]


class Known(StrEnum):
    """How a race became known."""

    CODE = "code"
    """By reading the Go scheduler: the control must fail."""
    TEST = "test"
    REPORT = "report"
    MEASURED = "measured"


def _nothing(run: Run) -> Iterator[str]:
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    entry: str
    """R-number, with a suffix where an entry needs more than one scenario: `R05`, `R05-b`."""
    title: str
    known: tuple[Known, ...]
    source: tuple[str, ...]
    """Threads (`ollama/ollama#17408`) and code (`S000 getRunner`) that tell of it."""
    scenario: Scenario
    requires: Callable[[Run], Iterator[str]] = _nothing
    """What of the required outcome is missing in a run, in words, besides the rules that hold for every run.

    It judges what can be seen from outside (clients, processes, times), so that it can judge any scheduler.
    """
    schedules: Sequence[int] = range(10)
    """Interleavings that are played. Ours must pass all; the control has to fail in one."""
    older: bool = False
    """The control is the older Go scheduler: this is known of it only."""
    control_passes: str = ""
    """Why the control does what is required, where it does."""

    def judge(self, run: Run) -> list[str]:
        """What is wrong with a run."""
        return [*run.broken, *self.requires(run)]
