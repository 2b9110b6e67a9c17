"""Do something at the k-th step of a run, for every k: cancel a client at each of its checkpoints, end the scheduler.

A client is cancelled in three ways: *blocked*, inside the checkpoint it has just come to; *racing*, when it has been
woken already, so that what it was given arrives together with the cancellation; and *between* any two steps of any
tasks, so that something may be given to it when it is cancelled already and does not know.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum

import trio
import trio.abc

from simulations.world import determinism
from simulations.world.clients import Client, Outcome
from simulations.world.invariants import violations
from simulations.world.world import World, open_world

__all__ = ["Mode", "Scenario", "StepTrigger", "sweep"]

Scenario = Callable[[World], Awaitable[Client]]
"""Brings a world into some state and returns the client to be cancelled, which has not run yet."""


class Mode(StrEnum):
    BLOCKED = "blocked"
    RACING = "racing"
    BETWEEN = "between"


class StepTrigger(trio.abc.Instrument):
    """Calls `action` once, at the k-th step of any task (or of those named `task`) after it was armed."""

    def __init__(self, k: int, mode: Mode = Mode.BLOCKED) -> None:
        self._k = k
        self._mode = mode
        self._steps = 0
        self._action: Callable[[], None] | None = None
        self._task: str | None = None
        self.fired = False
        self.fault: Exception | None = None
        """Of the action; trio only logs what instruments raise."""

    def arm(self, action: Callable[[], None], task: str | None = None) -> None:
        self._action, self._task = action, task

    def disarm(self) -> None:
        self._action = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._mode is not Mode.BLOCKED:
            self._count(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._mode is Mode.BLOCKED:
            self._count(task)

    def _count(self, task: trio.lowlevel.Task) -> None:
        if self._action is None or (self._task is not None and task.name != self._task):
            return
        self._steps += 1
        if self._steps == self._k:
            self.fired = True
            try:
                self._action()
            except Exception as error:
                self.fault = error


class Watch(trio.abc.Instrument):
    """Checks the invariants after every step of a task in which the scheduler's state has changed."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.broken: list[str] = []
        self._seen: object = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.world is None or self.broken:
            return
        if self.world.scheduler._changed is not self._seen:
            self._seen = self.world.scheduler._changed
            try:
                self.broken = list(violations(self.world.scheduler, self.world.factory))
            except Exception as error:
                self.broken = [repr(error)]


def sweep(
    scenario: Scenario,
    *,
    make: Callable[[], dict[str, object]] = dict,
    modes: Sequence[Mode] = tuple(Mode),
    seed: int = 0,
) -> int:
    """Cancel the client of `scenario` at each of its steps; returns the number of runs.

    `make`: arguments for `open_world`. Raises `AssertionError` for a broken invariant at any step, for anything that
    is left of anybody, and for another client that was not answered; it tells how to repeat the run.
    """
    runs = 0
    for mode in modes:
        k = 0
        fired = True
        while fired:
            k += 1
            runs += 1
            fired = _run(scenario, make(), k, mode, seed)
    return runs


def _run(scenario: Scenario, arguments: dict[str, object], k: int, mode: Mode, seed: int) -> bool:
    trigger, watch = StepTrigger(k, mode), Watch()
    events: list[object] = []

    async def main() -> None:
        async with open_world(**arguments) as world:  # type: ignore[arg-type]
            watch.world = world
            victim = await scenario(world)
            trigger.arm(victim.leave, None if mode is Mode.BETWEEN else victim.name)
            try:
                await world.quiesce(tidy=trigger.disarm)
                for client in world.clients:
                    if client is not victim:
                        assert client.outcome is Outcome.ANSWERED, f"{client.name}: {client.outcome} {client.error}"
            finally:
                events.extend(world.events)

    where = f"seed {seed}, {mode}, step {k}"
    try:
        determinism.run(main, seed=seed, instruments=[trigger, watch])
    except Exception as error:
        raise AssertionError(f"{where}: {error!r}\n{_tail(events)}") from error
    assert not watch.broken, f"{where}: {watch.broken}\n{_tail(events)}"
    if trigger.fault is not None:
        raise trigger.fault
    return trigger.fired


def _tail(events: Sequence[object]) -> str:
    return "\n".join(str(event) for event in events[-20:])
