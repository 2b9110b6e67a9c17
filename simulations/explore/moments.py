"""Do something at the k-th step of a run: a client leaves, or the server ends.

A client leaves in three ways: *blocked*, inside the checkpoint it has just come to; *racing*, when it has been woken
already, so that what it was given arrives together with the cancellation; and *between* any two steps of any tasks, so
that something may be given to it when it is cancelled already and does not know.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import trio
import trio.abc

from simulations.scenarios import Run, What
from simulations.scenarios.seeds import Spot
from simulations.world.system import OURS, System
from simulations.world.world import World

__all__ = ["Disturbed", "Mode", "Moment", "disturbed"]


class Mode(StrEnum):
    BLOCKED = "blocked"
    RACING = "racing"
    BETWEEN = "between"


@dataclass(frozen=True, slots=True)
class Moment:
    """`2:racing:17` in words: client 2, when it is woken for its 17th step; `end:between:40`: after 39 steps of all."""

    target: int | What
    """The client of that number leaves; `END` or `CLOSE`: so the server ends."""
    mode: Mode
    k: int
    """The step: of that client's task, or (between) of any task. 0: never, the steps are only counted."""

    def __post_init__(self) -> None:
        if not isinstance(self.target, int) and (self.target not in _ENDS or self.mode is not Mode.BETWEEN):
            raise ValueError(f"{self.target}:{self.mode}: a server only ends, or closes, between steps")

    def __str__(self) -> str:
        return f"{self.target}:{self.mode}:{self.k}"

    @classmethod
    def parse(cls, text: str) -> Moment:
        """Raises `ValueError`."""
        try:
            target, mode, k = text.split(":")
            return cls(int(target) if target.isdecimal() else What(target), Mode(mode), int(k))
        except ValueError as error:
            raise ValueError(f"{text!r} is no moment, such as 2:racing:17 or end:between:40: {error}") from None


_ENDS = (What.END, What.CLOSE)


@dataclass(frozen=True, slots=True)
class Disturbed:
    """A run, and how the moments came about, in their order."""

    run: Run
    moments: tuple[Moment, ...]
    steps: tuple[int, ...]
    """How many steps each might have been at."""
    at: tuple[float, ...]
    """The instants at which they came; infinite: never."""
    started: tuple[int, ...]
    """How many processes had been started by then."""


def disturbed(spot: Spot, *moments: Moment, system: System = OURS) -> Disturbed:
    """That run, disturbed at those moments."""
    triggers = [_Trigger(moment) for moment in moments]

    def bind(world: World) -> None:
        for trigger in triggers:
            trigger.world = world

    run = spot.play(system=system, interfere=bind, instruments=triggers)
    run.broken += [repr(trigger.fault) for trigger in triggers if trigger.fault is not None]
    return Disturbed(
        run,
        moments,
        tuple(trigger.steps for trigger in triggers),
        tuple(trigger.at for trigger in triggers),
        tuple(trigger.started for trigger in triggers),
    )


class _Trigger(trio.abc.Instrument):
    """Counts the steps at which a moment could come, and lets it come."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment
        self.world: World | None = None
        self.steps = 0
        self.at = math.inf
        self.started = 0
        self.fault: Exception | None = None
        """Of what was done; trio only logs what instruments raise."""
        self._task = None if moment.mode is Mode.BETWEEN else f"client {moment.target}"

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.moment.mode is not Mode.BLOCKED:
            self._count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.moment.mode is Mode.BLOCKED:
            self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        world = self.world
        if world is None or (self._task is not None and task.name != self._task) or self._over(world):
            return
        self.steps += 1
        if self.steps == self.moment.k:
            self.at, self.started = trio.current_time(), len(world.factory.spawned)
            try:
                self._strike(world)
            except Exception as error:
                self.fault = error

    def _over(self, world: World) -> bool:
        target = self.moment.target
        return isinstance(target, int) and (target > len(world.clients) or world.clients[target - 1].ended.is_set())

    def _strike(self, world: World) -> None:
        target = self.moment.target
        world.note(f"now: {self.moment}")
        if isinstance(target, int):
            world.clients[target - 1].leave()
        elif target is What.END:
            world.stop()
        else:
            world.close()
