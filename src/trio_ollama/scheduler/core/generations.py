"""The generations of runners: each change of their state and all that follows from it, their end, their keep-alive."""

from __future__ import annotations

from .crashes import CrashLog
from .decisions import Because, Drain
from .effects import Rearm, Stop
from .events import DrainStarted, RunnerGone
from .figures import Figures
from .leases import Leases
from .lifecycle import Consequence, Event, State, advance
from .loads import Loads
from .queue import Queue
from .records import Runner
from .step import Step
from .values import FOREVER

__all__ = ["Generations"]


class Generations:
    def __init__(
        self,
        step: Step,
        runners: dict[int, Runner],
        queue: Queue,
        leases: Leases,
        loads: Loads,
        figures: Figures,
        crashes: CrashLog,
    ) -> None:
        self._step = step
        self._runners = runners
        self._queue = queue
        self._leases = leases
        self._loads = loads
        self._figures = figures
        self._crashes = crashes

    def advance(
        self,
        runner: Runner,
        event: Event,
        text: str = "",
        *,
        because: Because | None = None,
        out_of_memory: bool = False,
    ) -> None:
        """The only place where a runner's state changes: the table's next state, and all that follows from it.

        `text`: the error, or how it ended. Raises `IllegalTransitionError` and changes nothing for a pair that is not
        in the table.
        """
        transition = advance(runner.state, event)
        runner.state = transition.to
        for consequence in transition.then:
            match consequence:
                case Consequence.CLOSE:
                    self._queue.unclaim(runner)
                    self.disarm(runner)
                case Consequence.STOP:
                    self._step.emit(Stop(runner.gen, kill=because not in (None, Because.SHUTDOWN)))
                case Consequence.STALE_FIGURES:
                    self._figures.outdate()
                case Consequence.FAIL_LOAD:
                    self._loads.failed(runner, text, out_of_memory=out_of_memory)
                case Consequence.FAIL_WAITERS:
                    self._loads.give_up(runner, text)
                case Consequence.NOTE_CRASH:
                    self._crashes.note(runner.key, text, self._step.now)
                case Consequence.LOSE_LEASES:
                    self._leases.lose(runner, because, text)
                case Consequence.FORGET:
                    del self._runners[runner.gen]
                    self._step.publish(RunnerGone(self._step.now, runner.model.name, runner.gen, text))

    # -- ways to end ------------------------------------------------------------------------------------------------

    def drain(self, runner: Runner, because: Because, wanted_by: Drain | None = None) -> None:
        """No new leases; it stops with the last one it has, at once if it has none (I16)."""
        self._announce(runner, because, wanted_by)
        self.advance(runner, Event.DRAIN)
        if not runner.leases:
            self.advance(runner, Event.STOP)
        else:
            self._step.emit(Rearm(runner.gen))

    def abort(self, runner: Runner, because: Because) -> None:
        """Its load is for nobody (R03)."""
        self._announce(runner, because)
        self.advance(runner, Event.ABORT)

    def kill(self, runner: Runner, because: Because, error: str) -> None:
        """Now, with an error for each of its leases (I04)."""
        self._announce(runner, because)
        self.advance(runner, Event.KILL, error, because=because)

    def _announce(self, runner: Runner, because: Because, wanted_by: Drain | None = None) -> None:
        runner.drain_because = because
        name, seq = runner.model.name, None if wanted_by is None else wanted_by.seq
        facts = () if wanted_by is None else (wanted_by.resource, wanted_by.bytes, wanted_by.alternatives)
        self._step.publish(DrainStarted(self._step.now, name, runner.gen, because, seq, len(runner.leases), *facts))

    # -- keep-alive -------------------------------------------------------------------------------------------------

    def settle_idle(self) -> bool:
        """Start the keep-alive of runners that have become idle and stay so (I15); True if one ended at once."""
        ended = False
        for runner in self._runners.values():
            if runner.state is not State.READY or runner.busy or runner.armed:
                continue
            if runner.keep_alive <= 0:
                self.drain(runner, Because.EXPIRED)
                ended = True
                continue
            runner.armed = True
            if runner.keep_alive != FOREVER:
                runner.deadline = self._step.now + runner.keep_alive
            self._step.emit(Rearm(runner.gen))
        return ended

    def disarm(self, runner: Runner) -> None:
        """It is idle no more, or goes."""
        if runner.armed:
            runner.armed, runner.deadline = False, None
            self._step.emit(Rearm(runner.gen))
