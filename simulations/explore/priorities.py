"""Interleavings with few preemptions (probabilistic concurrency testing, PCT).

Every task has a random priority, and of all that can run only the highest runs, until it blocks; at a few random
steps the one that runs falls below all others. A fault that needs d ordered events at certain tasks shows with d - 1
such changes in at least 1 of n * k^(d-1) runs (n tasks, k steps), whereas shuffled batches, in which everybody moves
one step at a time, hardly ever hold one task back for long.

trio takes a batch of all runnable tasks, has it shuffled by our `Random`, and runs it from its end. Here the shuffle
leaves the highest task in the batch and puts the others back onto the queue for the next batch.
"""

from __future__ import annotations

import random
from collections.abc import MutableSequence
from typing import Any, Final

__all__ = ["CHANGES", "PATIENCE", "STEPS", "Priorities"]

CHANGES: Final = 3
"""How often the running task falls below all others."""
STEPS: Final = 600
"""The steps of a usual run, over which the changes are spread."""
PATIENCE: Final = 400
"""Rounds that a runnable task may be passed over; then it runs once. Else a task that never blocks would stop the
clock, which moves only when all are blocked."""


class Priorities(random.Random):
    """Its `shuffle` orders trio's batches of tasks; whatever else is drawn from it is drawn as usual."""

    def __init__(self, seed: int, *, changes: int = CHANGES, steps: int = STEPS, patience: int = PATIENCE) -> None:
        super().__init__(seed)
        self._priorities: dict[int, float] = {}
        """By trio's number of the task; of tasks that are gone, too."""
        self._passed_over: dict[int, int] = {}
        """How often in a row, of those that can run."""
        self._changes = sorted(self.sample(range(1, steps + 1), min(changes, steps)), reverse=True)
        """The steps after which the task that took them falls; the next one is the last."""
        self._lowest = 0.0
        self._patience = patience
        self.steps = 0
        """Steps of tasks so far."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Leave the one task that runs now in the batch, and put the others back."""
        if not x:
            return
        chosen = self._choose([task._counter for task in x])
        others = [task for task in x if task._counter != chosen]
        x[:] = [task for task in x if task._counter == chosen]
        if others:
            from trio._core._run import GLOBAL_RUN_CONTEXT

            GLOBAL_RUN_CONTEXT.runner.runq.extend(others)

    def _choose(self, tasks: list[int]) -> int:
        """The number of the task that runs now."""
        for task in tasks:
            if task not in self._priorities:
                self._priorities[task] = 1 + self.random()
        chosen = max(tasks, key=self._priorities.__getitem__)
        longest = max(tasks, key=lambda task: self._passed_over.get(task, 0))
        if self._passed_over.get(longest, 0) >= self._patience:
            chosen = longest
        self._passed_over = {task: self._passed_over.get(task, 0) + 1 for task in tasks if task != chosen}
        self.steps += 1
        if self._changes and self.steps >= self._changes[-1]:
            self._changes.pop()
            self._lowest -= 1
            self._priorities[chosen] = self._lowest
        return chosen
