"""Watches a run: has the rules judged, and counts which rows of the lifecycle table are used."""

from __future__ import annotations

from collections.abc import Callable

from simulations.world.world import World

from .run import Run

__all__ = ["Watch", "count_rows"]


class Watch:
    """Has the rules judged: after each step that changed the scheduler's state, and when nothing can run any more."""

    def __init__(self, run: Run) -> None:
        self._world: World | None = None
        self._run = run
        self._seen: object = None

    def begin(self, world: World) -> None:
        self._world = world
        if world.system.rules is not None:
            world.rules = world.system.rules(world)
            world.rules.broken = self._run.broken

    def end(self) -> None:
        self._world = None

    def after_step(self) -> None:
        run, world = self._run, self._world
        run.steps += 1
        if world is None or run.broken:
            return
        steps = world.scheduler._steps
        if steps != self._seen:
            self._seen = steps
            self._judge(world, world.rules.changed if world.rules is not None else None)

    def at_rest(self, now: float, then: float) -> None:
        """Nothing can happen any more before that instant."""
        world = self._world
        if world is not None and world.rules is not None and not self._run.broken:
            self._judge(world, world.rules.quiet, now, then)

    def _judge(self, world: World, rules: Callable[..., None] | None, *facts: float) -> None:
        """A rule that fails itself is a broken one; the event loop is no place for exceptions."""
        try:
            if rules is None:
                self._run.broken += world.system.violations(world.scheduler, world.factory)
            else:
                rules(*facts)
        except Exception as error:
            self._run.broken.append(repr(error))


def count_rows(world: World, run: Run) -> None:
    """Count which rows of the lifecycle table are used."""
    generations = world.scheduler.fleet._generations
    advance = generations.advance

    def counting(runner: object, event: object, *arguments: object, **more: object) -> None:
        run.reached[runner.state, event] += 1  # type: ignore[attr-defined]
        advance(runner, event, *arguments, **more)  # type: ignore[arg-type]

    generations.advance = counting  # type: ignore[method-assign]
