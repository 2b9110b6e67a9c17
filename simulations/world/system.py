"""A scheduler as the world sees it: ours, or another one for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trio_ollama.scheduler import Scheduler

from .factory import SimulatedRunnerFactory
from .invariants import leftovers, overbooked, violations
from .rules import Rules

__all__ = ["OURS", "System"]


@dataclass(frozen=True, slots=True)
class System:
    """`make` takes what `Scheduler` takes; what it returns does what clients and faults ask of a scheduler:

    `run(task_status)`, `acquire(demand)`, `stop(key)`, `force_stop(key)`, `runtime_out_of_memory()`, `close()`,
    `drained()`, `stop_all()`.
    """

    name: str
    make: Callable[..., Any]
    violations: Callable[[Any, SimulatedRunnerFactory], Iterator[str]]
    """Rules that do not hold at this moment."""
    leftovers: Callable[[Any, SimulatedRunnerFactory, Mapping[str, int]], Iterator[str]]
    """What is there although nothing should be."""
    rules: Callable[[Any], Rules] | None = None
    """Makes, for a world, the rules that are judged with a memory of what was before."""
    exit: Callable[[Any], None] = lambda scheduler: None
    """The whole server vanishes, with tasks of it that cannot be cancelled."""


def _violations(scheduler: Scheduler, factory: SimulatedRunnerFactory) -> Iterator[str]:
    yield from violations(scheduler, factory)
    yield from overbooked(scheduler.fleet)


OURS = System("ours", Scheduler, _violations, leftovers, Rules)
