"""A broken scheduler must not hang its simulation: a world in which nothing can happen any more, or in which too much
happens, is ended, whatever shields its tasks are in."""

from __future__ import annotations

from typing import Any, Final

import trio

__all__ = ["Guard", "WedgedError"]

MOST_ROUNDS: Final = 100_000
"""Of the event loop in one run; real ones take some hundreds."""


class WedgedError(AssertionError):
    """The world was ended by force; the text tells who waited."""


class Guard:
    """Watches the run of trio's `runner`. `whole` is the scope around its main task."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.whole = trio.CancelScope()
        self._rounds = 0
        self.reason: str | None = None
        """Why the world was ended."""

    def count_round(self) -> None:
        """The event loop begins a round."""
        self._rounds += 1
        if self._rounds == MOST_ROUNDS:
            running = [task.name for task in self._runner.runq]
            self._end(f"{MOST_ROUNDS} rounds of the event loop and no end", ", ".join(sorted(set(running))))

    def everybody_waits(self) -> None:
        """No task can run, and there is no deadline either."""
        waiting = [task for task in _tasks(self._runner.main_task) if not task.child_nurseries]
        self._end("everybody waits, for nothing", ", ".join(sorted(task.name for task in waiting)))

    def _end(self, reason: str, who: str) -> None:
        if self.reason is None:
            self.reason = f"{reason}: {who}"
            # Tasks cannot be cancelled from here: the event loop is about to wait already.
            self._runner.entry_queue.run_sync_soon(self._break_out)

    def _break_out(self) -> None:
        for task in _tasks(self._runner.main_task):
            status: Any = task._cancel_status
            while status is not None and status._scope is not self.whole:
                status._scope.shield = False
                status = status._parent
        self.whole.cancel("the world is wedged")


def _tasks(root: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    """The task and all below it, in a fixed order."""
    found = [root]
    for task in found:
        for nursery in task.child_nurseries:
            found += sorted(nursery.child_tasks, key=lambda child: child._counter)
    return found
