"""The single owner of all scheduling state, and all that can happen to it. Every public method is one synchronous step
(I17): no step blocks, and between steps nothing of the state is in between. A step ends with planner passes until
nothing more follows, and leaves its effects for the shell (`take_effects`) and its events for those who listen.

Instants are nanoseconds of the monotonic clock and are handed in; nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from . import events as ev
from .crashes import CrashLog
from .decisions import Because
from .effects import Effect
from .figures import Figures
from .generations import Generations
from .leases import Leases
from .lifecycle import Event, State
from .loads import Loads
from .measured import Taken
from .memo import Memo
from .planner import Planner
from .queue import Queue
from .records import Runner, Waiter
from .shortcuts import arrival, departure_changes_nothing
from .stages import stage
from .step import Step
from .values import RAM, Demand, DeviceFacts, Placement, Policy

__all__ = ["Fleet"]


class Fleet:
    """Devices, runner generations and waiters. `on_event` is called synchronously with every event."""

    def __init__(self, policy: Policy, on_event: Callable[[ev.Event], None] = lambda event: None) -> None:
        self.policy = policy
        self.runners: dict[int, Runner] = {}
        self._step = step = Step(on_event)
        self._memo = memo = Memo(policy)
        self._crashes = crashes = CrashLog(policy.crash_limit, policy.crash_backoff)
        self._figures = figures = Figures(step)
        self._queue = queue = Queue(step, self.runners, policy.queue_bound)
        self._leases = leases = Leases(step, self.runners)
        self._loads = loads = Loads(policy, step, self.runners, queue, figures, crashes, memo)
        self._generations = lives = Generations(step, self.runners, queue, leases, loads, figures, crashes)
        self._planner = Planner(step, self.runners, queue, leases, loads, lives, memo)
        self.waiters = queue.waiters
        self.queues = queue.by_model
        self.overtakers = queue.overtakers
        self.oom_retries = loads.retries

    # -- what the planner and the shell read --------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The instant of the last step. It may be set to ask for `facts_fresh` at another one."""
        return self._step.now

    @now.setter
    def now(self, now: int) -> None:
        self._step.now = now

    @property
    def closing(self) -> bool:
        return self._queue.closed

    @property
    def devices(self) -> Sequence[DeviceFacts]:
        return self._figures.devices

    @property
    def facts_fresh(self) -> bool:
        return self._figures.fresh

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    @property
    def model_limit(self) -> int:
        """From the current device list, never latched (R47)."""
        return self.policy.max_models or 3 * max(1, len([device for device in self.devices if device.id != RAM]))

    def backed_off(self, key: str) -> str | None:
        return self._crashes.backed_off(key, self._step.now)

    def placements(self, waiter: Waiter, base: Mapping[str, int]) -> tuple[Placement, ...]:
        return self._memo.placements(waiter, self._figures.devices, base)

    def never_fits(self, waiter: Waiter) -> tuple[int, int] | None:
        return self._memo.never_fits(waiter, self._figures.devices)

    def can_grant(self, demand: Demand) -> bool:
        """True if a loaded runner could serve this at once, so that no fresh figures are needed first."""
        return any(runner.key == demand.model.key and runner.state is State.READY for runner in self.runners.values())

    # -- requests -----------------------------------------------------------------------------------------------

    def arrive(self, demand: Demand, now: int) -> int:
        """A request comes; returns its seq. Its outcome is an effect of this step or of a later one."""
        self._step.now = now
        waiter = self._queue.enter(demand, self._loads.configuration(demand))
        decision = arrival(self, waiter)
        if decision is None:
            self._replan()
        else:
            self._planner.apply((decision,))
            self._planner.tidy()
        return waiter.seq

    def leave(self, seq: int, now: int) -> None:
        """The client is gone: its place, claim and lease go in this step (I10). Harmless if it holds nothing."""
        self._step.now = now
        if seq not in self.waiters:
            self.release(seq, now)
            return
        waiter = self._queue.remove(seq)
        self._step.publish(ev.RequestLeft(now, waiter.demand.model.name, seq, now - waiter.arrived, stage(waiter)))
        self._loads.left(waiter)
        if departure_changes_nothing(self, waiter):
            self._planner.tidy()
        else:
            self._replan()

    def release(self, seq: int, now: int, *, settled: bool = True, served: bool = False) -> None:
        """The lease ends; a no-op for a lease that is gone (I03, R13).

        `settled` False: the child may still work for it, so its slot stays taken until `slot_settled`.
        `served`: the runner answered it, so it is no crash loop.
        """
        self._step.now = now
        runner = self._leases.release(seq, settled=settled)
        if runner is None:
            return
        if served:
            self._crashes.forget(runner.key)
        if not runner.leases:
            if runner.state is State.DRAINING:
                self._generations.advance(runner, Event.STOP)
            self._replan()

    def want_slot(self, seq: int, now: int) -> bool:
        """A lease asks for a slot (again): one input of an embeddings batch (R10). False if the lease is gone."""
        self._step.now = now
        return self._leases.want_slot(seq)

    def return_slot(self, seq: int, now: int, *, settled: bool = True) -> None:
        """The lease gives its slot back, or stops waiting for one, but stays."""
        self._step.now = now
        self._leases.return_slot(seq, settled=settled)

    def slot_settled(self, gen: int, now: int) -> None:
        """The child confirmed the end of a call whose request had left before (R08)."""
        self._step.now = now
        runner = self.runners.get(gen)
        if runner is not None:
            self._leases.settle(runner)

    # -- the life of a runner -----------------------------------------------------------------------------------

    def spawned(self, gen: int, pid: int, now: int) -> None:
        self._step.now = now
        runner = self.runners[gen]
        runner.pid = pid
        self._generations.advance(runner, Event.SPAWNED)

    def spawn_failed(self, gen: int, error: str, now: int) -> None:
        self._step.now = now
        self._generations.advance(self.runners[gen], Event.SPAWN_FAILED, error)
        self._replan()

    def loaded(
        self,
        gen: int,
        *,
        context: int,
        total_bytes: int,
        gpu_bytes: int,
        report: object,
        now: int,
        taken: Taken | None = None,
    ) -> None:
        """The child is ready: its first waiter is granted in this step (R44). `taken`: what it is known to hold."""
        self._step.now = now
        runner = self.runners[gen]
        if not runner.loading:
            return  # aborted in the same instant; its supervisor is already stopping it
        self._generations.advance(runner, Event.LOADED)
        self._loads.done(
            runner, context=context, total_bytes=total_bytes, gpu_bytes=gpu_bytes, report=report, taken=taken
        )
        self._replan()
        if runner.closed_after is not None and runner.state is State.READY:
            # Stopped during its load: whoever it was for has its lease now (R26; fault d of the docs).
            self._generations.drain(runner, runner.drain_because or Because.STOPPED)
            self._replan()

    def load_failed(self, gen: int, error: str, *, out_of_memory: bool, now: int) -> None:
        """The child says it cannot load; its process is stopped."""
        self._step.now = now
        runner = self.runners[gen]
        if not runner.loading:
            return
        runner.drain_because = Because.LOAD_FAILED
        self._generations.advance(runner, Event.LOAD_FAILED, error, out_of_memory=out_of_memory)
        self._replan()

    def exited(self, gen: int, error: str, *, out_of_memory: bool = False, now: int) -> None:
        """The process is reaped, whatever the reason. Its leases get one error each (R80)."""
        self._step.now = now
        runner = self.runners[gen]
        runner.stuck = False
        self._generations.advance(runner, Event.EXITED, error, out_of_memory=out_of_memory)
        self._replan()

    def recovered(self, gen: int, how: str, now: int) -> None:
        """Its memory is back, or nothing can be waited for."""
        self._step.now = now
        self._generations.advance(self.runners[gen], Event.RECOVERED, how)
        self._replan()

    def stuck(self, gen: int, now: int) -> None:
        """Neither SIGTERM nor SIGKILL ended it: its bytes stay reserved, its key is refused (R71)."""
        self._step.now = now
        runner = self.runners[gen]
        if runner.state is State.STOPPING:
            runner.stuck = True
            self._step.publish(ev.RunnerStuck(now, runner.model.name, gen, runner.pid))
            self._replan()

    def expire(self, gen: int, now: int) -> None:
        """The keep-alive timer fired; a timer of an earlier idle period does nothing (R21)."""
        self._step.now = now
        runner = self.runners.get(gen)
        if runner is None or runner.state is not State.READY or runner.busy:
            return
        if runner.deadline is not None and now >= runner.deadline:
            self._generations.drain(runner, Because.EXPIRED)
            self._replan()

    def stop(self, key: str, because: Because, now: int) -> bool:
        """Stop or delete: sticky (R25). A load serves those who wait for it now, then drains (R26)."""
        self._step.now = now
        found = False
        for runner in list(self.runners.values()):
            if runner.key != key:
                continue
            if runner.state is State.READY:
                found = True
                self._generations.drain(runner, because)
            elif runner.loading:
                found = True
                if runner.closed_after is None:
                    runner.closed_after, runner.drain_because = self._queue.last_seq, because
        if found:
            self._replan()
        return found

    def kill(self, gen: int, because: Because, error: str, now: int) -> None:
        """End a runner now, with an error for each of its leases: forced stop, hung runner, shutdown (I04)."""
        self._step.now = now
        runner = self.runners.get(gen)
        if runner is None or runner.state in (State.RECOVERING, State.GONE):
            return
        self._generations.kill(runner, because, error)
        self._replan()

    def runtime_out_of_memory(self, now: int) -> None:
        """A running request ran out of memory: everything drains (R51)."""
        self._step.now = now
        for runner in list(self.runners.values()):
            if runner.state is State.READY:
                self._generations.drain(runner, Because.RUNTIME_OOM)
        self._replan()

    def close(self, now: int) -> None:
        """Shutting down: nobody new, no spawn (I25), and whoever waits is told so; work that has begun goes on."""
        self._step.now = now
        self._queue.closed = True
        for runner in self.runners.values():
            self._leases.turn_away(runner)
            if not runner.leases and runner.state is State.DRAINING:
                self._generations.advance(runner, Event.STOP)
        self._replan()

    def report(self, devices: Sequence[DeviceFacts], started: int, now: int) -> None:
        """Figures of a query that began at `started`; what did not answer has its last good value in it (I19, R65)."""
        self._step.now = now
        changed = self._figures.report(devices, started, self.runners.values())
        if changed or self._queue.measuring:
            # Else nobody fares differently: that figures are fresh matters to those only who wait for it.
            self._replan()

    def take_effects(self) -> list[Effect]:
        return self._step.take_effects()

    def _replan(self) -> None:
        self._planner.replan(self)
