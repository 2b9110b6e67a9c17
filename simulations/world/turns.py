"""The event loop of a simulated world: trio's tasks, nurseries and scopes, driven by a loop of our own.

A run is some hundreds of steps of a microsecond each, between which trio's loop asks for instruments at five places,
for input and output, for the time and for its deadlines. Here only what a simulated world has is looked at: tasks that
can run, alarms and deadlines to jump to, and, rarely, what comes from outside of all tasks (Ctrl-C). The order of steps
is that of trio's loop with its clock for tests, which `determinism.run` can have as well, to compare.

Names of trio that are used here are private; `determinism.self_test` notices when they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from random import Random
from typing import Any

import outcome
import trio
from trio.lowlevel import enable_ki_protection

from .guard import Guard
from .loop import JumpingClock

__all__ = ["Turns"]


class Turns:
    """`run` stands in for `trio._core._run.unrolled_run`, once.

    `at_rest` is called before each jump of the clock, with the instants before and after it: nothing will happen in
    between. `after_step` is called after each step of a task. Both raise nothing.
    """

    def __init__(
        self,
        scheduling: Any,
        random: Random,
        clock: JumpingClock,
        *,
        at_rest: Callable[[float, float], None],
        after_step: Callable[[], None] | None,
    ) -> None:
        self._context = scheduling.GLOBAL_RUN_CONTEXT
        self._shielded = scheduling.CancelShieldedCheckpoint
        self._random = random
        self._clock = clock
        self._at_rest = at_rest
        self._after_step = after_step
        self.guard: Guard
        """From the first turn on."""

    @enable_ki_protection
    def run(
        self, runner: Any, main: Callable[..., Any], arguments: tuple[Any, ...], signals: bool = False
    ) -> Generator[float, Any, None]:
        """Yields the time to wait for events only when there is one from outside, and is sent them."""
        self.guard = Guard(runner)
        try:
            runner.entry_queue.wakeup.wakeup_on_signals()
            runner.init_task = runner.spawn_impl(runner.init, (main, arguments), None, "<init>", system_task=True)
            yield from self._turns(runner)
        except Exception as error:
            raise trio.TrioInternalError("the simulated loop fails") from error
        finally:
            runner.close()
            self._context.__dict__.clear()
            if runner.ki_pending:
                runner.main_task_outcome = outcome.Error(KeyboardInterrupt())

    def _turns(self, runner: Any) -> Generator[float, Any, None]:
        queue, clock, deadlines, outside = runner.runq, self._clock, runner.deadlines, runner.entry_queue
        step, guard, after_step = self._step, self.guard, self._after_step
        while runner.tasks:
            guard.count_round()
            if outside.queue:
                runner.io_manager.process_events((yield 0))
            elif not queue:
                self._rest(runner)
            if deadlines._heap and deadlines._heap[0][0] <= clock.now:
                deadlines.expire(clock.now)
            if len(queue) == 1:
                batch = [queue.popleft()]
            else:
                batch = sorted(queue, key=_number)
                queue.clear()
                if batch:
                    self._random.shuffle(batch)
            while batch:
                step(runner, batch.pop())
                if after_step is not None:
                    after_step()

    def _rest(self, runner: Any) -> None:
        """Nobody can run: wake those who wait for just that, else let time pass."""
        waiting = runner.waiting_for_idle
        deadline = runner.deadlines.next_deadline()
        if not waiting and deadline > self._clock.now:
            deadline = min(deadline, self._clock.next_alarm)
            self._at_rest(self._clock.now, deadline)
            if deadline < math.inf:
                self._clock.jump(deadline)
            else:
                self.guard.everybody_waits()
        while waiting:
            key, task = waiting.popitem(0)
            runner.reschedule(task)
            if waiting and waiting.keys()[0][0] > key[0]:
                break

    def _step(self, runner: Any, task: Any) -> None:
        """One step of a task, and what it asks for at the end of it."""
        hooks = runner.instruments.data
        context = self._context
        context.task = task
        if "before_task_step" in hooks:
            runner.instruments.call("before_task_step", task)
        go_on, value = task._next_send_fn, task._next_send
        task._next_send_fn = task._next_send = None
        end: outcome.Outcome[object] | None = None
        try:
            asked = task.context.run(go_on, value)
        except StopIteration as returned:
            end = outcome.Value(returned.value)
        except BaseException as error:  # noqa: ASYNC103 - it goes to whoever waits for the task
            # Without this frame, which knows the error: together they would be garbage that only a collector finds.
            end = outcome.Error(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        if end is not None:
            runner.task_exited(task, end)
            end = None
        elif asked is self._shielded:
            task._schedule_points += 1
            runner.reschedule(task)
        else:
            task._schedule_points += 1
            task._cancel_points += 1
            task._abort_func = asked.abort_func
            if runner.ki_pending and task is runner.main_task:
                task._attempt_delivery_of_pending_ki()
            if task._cancel_status.effectively_cancelled:
                task._attempt_delivery_of_any_pending_cancel()
        if "after_task_step" in hooks:
            runner.instruments.call("after_task_step", task)
        del context.task


def _number(task: Any) -> int:
    number: int = task._counter
    return number
