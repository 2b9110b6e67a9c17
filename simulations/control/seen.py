"""What can be seen of the control from outside: rules that do not hold, and what is left when nothing should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from simulations.world.factory import SimulatedRunnerFactory

from .scheduler import Control

__all__ = ["leftovers", "violations"]

LOOPS = frozenset({"pending loop", "completed loop"})


def violations(control: Control, factory: SimulatedRunnerFactory) -> Iterator[str]:
    """At this moment, or noted at the moment when it happened."""
    yield from control.state.broken
    yield from control.state.runtime.panics
    for model, count in Counter(process.spec.model for process in factory.alive).items():
        if count > 1:
            yield f"I05: {count} processes of {model}"


def leftovers(control: Control, factory: SimulatedRunnerFactory, in_use: Mapping[str, int]) -> Iterator[str]:
    """Goroutines beyond the two loops, processes, memory, and runners that are still listed."""
    if not control.state.runtime.gone:
        for runner in control.state.loaded.values():
            yield f"runner {runner.who} used by {runner.count}"
    for process in factory.alive:
        yield f"process {process.pid}"
    if in_use:
        yield f"memory {dict(in_use)}"
    for name in control.state.runtime.goroutines():
        if name not in LOOPS:
            yield f"goroutine: {name}"
