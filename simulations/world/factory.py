"""Starts simulated runners: how the next ones behave, and which there ever were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final

from trio_ollama.runners.contract import LaunchSpec, SpawnError

from .behaviour import Behaviour
from .hardware import SimulatedHardware
from .runners import SimulatedRunner

__all__ = ["SimulatedRunnerFactory"]

FIELDS: Final = tuple(field.name for field in fields(Behaviour))


class SimulatedRunnerFactory:
    """Implements `RunnerFactory`. `footprint` tells the bytes by device that a launch takes."""

    def __init__(
        self,
        hardware: SimulatedHardware,
        footprint: Callable[[LaunchSpec], Mapping[str, int]],
        usual: Behaviour | None = None,
        *,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._hardware = hardware
        self._footprint = footprint
        self._note = note
        self.usual = usual or Behaviour()
        self._next: dict[str, list[Behaviour]] = {}
        self.spawned: list[SimulatedRunner] = []
        """Every process there ever was, in order."""
        self._alive: list[SimulatedRunner] = []
        self.injected: Counter[str] = Counter()
        """How often processes were to behave otherwise than usual, by field of `Behaviour`."""

    def next(self, model: str, *behaviours: Behaviour) -> None:
        """The next launches of `model` (a path) behave so; all others as usual."""
        self._next.setdefault(model, []).extend(behaviours)

    def heal(self, usual: Behaviour) -> None:
        """All processes started from now on behave so; those that hang go on, and all can die."""
        self.usual = usual
        self._next.clear()
        for runner in self.alive:
            runner.thaw()
            runner.let_go(usual)

    @property
    def alive(self) -> list[SimulatedRunner]:
        self._alive = [runner for runner in self._alive if runner.exited is None]
        return self._alive

    def describe(self) -> str:
        return "simulated"

    def spawn(self, spec: LaunchSpec) -> SimulatedRunner:
        queue = self._next.get(spec.model)
        behaviour = queue.pop(0) if queue else self._usually(spec)
        if behaviour != self.usual:
            self.injected.update(name for name in FIELDS if getattr(behaviour, name) != getattr(self.usual, name))
        if behaviour.spawn_raises is not None:
            raise behaviour.spawn_raises
        if behaviour.spawn_error is not None:
            raise SpawnError(behaviour.spawn_error)
        pid = 1000 + len(self.spawned)
        runner = self._process(pid, spec, behaviour)
        self.spawned.append(runner)
        self._alive.append(runner)
        self._note(f"process {pid} starts: {spec.model}")
        return runner

    def _usually(self, spec: LaunchSpec) -> Behaviour:
        """How a process behaves of which nothing else was said."""
        return self.usual

    def _process(self, pid: int, spec: LaunchSpec, behaviour: Behaviour) -> SimulatedRunner:
        return SimulatedRunner(pid, spec, behaviour, self._hardware, self._footprint(spec), note=self._note)
