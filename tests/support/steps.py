"""Something that happens at the k-th step of a simulated world, whoever's step that is."""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["StepTrigger"]


class StepTrigger(trio.abc.Instrument):
    """Calls what it is armed with once, after the k-th step of any task from then on."""

    def __init__(self, k: int) -> None:
        self._left = k
        self._action: Callable[[], None] | None = None
        self.fired = False
        self.fault: Exception | None = None
        """Of the action; trio only logs what instruments raise."""

    def arm(self, action: Callable[[], None]) -> None:
        self._action = action

    def disarm(self) -> None:
        self._action = None

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._action is None or self.fired:
            return
        self._left -= 1
        if self._left == 0:
            self.fired = True
            try:
                self._action()
            except Exception as error:
                self.fault = error
