"""A broken scheduler must not hang its simulation: a world in which nothing can happen any more, or in which too much
happens, is ended, whatever shields its tasks are in."""

from __future__ import annotations

from typing import Any, Final

import trio

__all__ = ["Guard", "WedgedError"]

MOST_STEPS: Final = 100_000
"""Steps of tasks in one run; real ones take some hundreds."""


class WedgedError(AssertionError):
    """The world was ended by force; the text tells who waited."""


class Guard(trio.abc.Instrument):
    """Watches a run for as long as `whole`, the scope around its main task, is entered."""

    def __init__(self, runner: Any, whole: trio.CancelScope) -> None:
        self._runner = runner
        self._whole = whole
        self._steps = 0
        self.reason: str | None = None
        """Why the world was ended."""

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        if self._steps == MOST_STEPS:
            self._end(f"{MOST_STEPS} steps and no end", task.name)

    def before_io_wait(self, timeout: float) -> None:
        runner = self._runner
        idle = not runner.runq and not runner.waiting_for_idle and runner.entry_queue.size() == 0
        if idle and runner.deadlines.next_deadline() == float("inf"):
            waiting = [task for task in _tasks(runner.main_task) if not task.child_nurseries]
            self._end("everybody waits, for nothing", ", ".join(sorted(task.name for task in waiting)))

    def _end(self, reason: str, who: str) -> None:
        if self.reason is None:
            self.reason = f"{reason}: {who}"
            # From here it could be cancelled as well, but the event loop is about to wait already.
            trio.lowlevel.current_trio_token().run_sync_soon(self._break_out)

    def _break_out(self) -> None:
        for task in _tasks(self._runner.main_task):
            status: Any = task._cancel_status
            while status is not None and status._scope is not self._whole:
                status._scope.shield = False
                status = status._parent
        self._whole.cancel("the world is wedged")


def _tasks(root: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    """The task and all below it, in a fixed order."""
    found = [root]
    for task in found:
        for nursery in task.child_nurseries:
            found += sorted(nursery.child_tasks, key=lambda child: child._counter)  # type: ignore[attr-defined]
    return found
