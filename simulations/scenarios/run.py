"""What a scheduler made of a scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from simulations.world.clients import Client
from simulations.world.runners import SimulatedRunner
from trio_ollama.scheduler.core.events import Event

from .scenario import Scenario

__all__ = ["Run"]


@dataclass(slots=True)
class Run:
    scenario: Scenario
    schedule: int
    """The seed of the interleaving."""
    system: str
    broken: list[str] = field(default_factory=list)
    """Rules that did not hold, in words: the name of the rule first. The first one is the first that was seen."""
    trace: Sequence[str] = ()
    """Everything that happened, line by line, each with its instant."""
    events: list[Event] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)
    """In the order of the scenario's requests."""
    processes: list[SimulatedRunner] = field(default_factory=list)
    """In the order in which they were started."""
    reached: Counter[object] = field(default_factory=Counter)
    """How often which pair of runner state and lifecycle event was seen."""
    closed_at: float | None = None
    """The instant at which the server was first told to end, or to take no more, in the course of the scenario."""
    injected: Counter[str] = field(default_factory=Counter)
    """Faults that struck, by kind: those of the scenario, and how processes behaved otherwise than usual."""
    steps: int = 0
    """Steps of tasks."""
    seconds: float = 0.0
    """Simulated."""

    @property
    def digest(self) -> str:
        """The hash of the trace."""
        return sha256("\n".join(self.trace).encode()).hexdigest()

    def launches(self, model: str) -> int:
        return sum(process.spec.model == model for process in self.processes)
