"""The single owner of all scheduling state. Every public method is one synchronous step (I17): no step blocks, and
between steps nothing of the state is in between. A step ends with planner passes until nothing more follows, and
leaves its effects for the shell (`take_effects`) and its events for whoever listens (`on_event`).

Instants are nanoseconds of the monotonic clock and are handed in; nothing here reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from . import events as ev
from .config import launchable, notes, wanted
from .context import step_down
from .crashes import CrashLog
from .decisions import Abort, Because, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from .effects import Effect, Granted, Lost, Measure, Rearm, Refused, SlotGranted, Spawn, Stop
from .lifecycle import Consequence, Event, State, advance
from .measured import Taken, verdict_on
from .memo import Memo
from .plan import plan
from .records import Lease, OomRetry, Runner, Waiter
from .reload import difference
from .shortcuts import arrival, departure_changes_nothing
from .stages import stage
from .values import FOREVER, MODELS, RAM, Demand, DeviceFacts, LaunchConfig, Placement, Policy

__all__ = ["FACTS_MAX_AGE", "Fleet"]

FACTS_MAX_AGE = 500_000_000
"""Nanoseconds after which memory figures are measured again before a load is started on them."""


class Fleet:
    """Devices, runner generations and waiters. `on_event` is called synchronously with every event."""

    def __init__(self, policy: Policy, on_event: Callable[[ev.Event], None] = lambda event: None) -> None:
        self.policy = policy
        self.closing = False
        self.devices: Sequence[DeviceFacts] = ()
        self.runners: dict[int, Runner] = {}
        self.waiters: dict[int, Waiter] = {}
        self.queues: dict[str, dict[int, Waiter]] = {}
        self.overtakers: dict[str, list[int]] = {}
        self.oom_retries: dict[str, OomRetry] = {}
        self.crashes = CrashLog(policy.crash_limit, policy.crash_backoff)
        self.now = 0
        self._measured_at: int | None = None
        self._changed_at = 0
        self._on_event = on_event
        self._effects: list[Effect] = []
        self._leases: dict[int, int] = {}
        self._spawned_at: dict[int, int] = {}
        self._last_seq = 0
        self._last_gen = 0
        self._measuring: set[int] = set()
        self._overbooked: set[str] = set()
        self._memo = Memo(policy)

    # -- what the planner reads ---------------------------------------------------------------------------------

    @property
    def facts_fresh(self) -> bool:
        return self._measured_at is not None and self.now - self._measured_at <= FACTS_MAX_AGE

    @property
    def model_limit(self) -> int:
        """From the current device list, never latched (R47)."""
        return self.policy.max_models or 3 * max(1, len([device for device in self.devices if device.id != RAM]))

    def backed_off(self, key: str) -> str | None:
        return self.crashes.backed_off(key, self.now)

    @property
    def waiting(self) -> int:
        """Requests without a slot, at any stage (I13)."""
        return len(self.waiters) + sum([len(runner.slot_queue) for runner in self.runners.values()])

    def placements(self, waiter: Waiter, base: Mapping[str, int]) -> tuple[Placement, ...]:
        return self._memo.placements(waiter, self.devices, base)

    def never_fits(self, waiter: Waiter) -> tuple[int, int] | None:
        return self._memo.never_fits(waiter, self.devices)

    # -- requests -----------------------------------------------------------------------------------------------

    def can_grant(self, demand: Demand) -> bool:
        """True if a loaded runner could serve this at once, so that no fresh figures are needed first."""
        return any(runner.key == demand.model.key and runner.state is State.READY for runner in self.runners.values())

    def arrive(self, demand: Demand, now: int) -> int:
        """A request comes; returns its seq. Its outcome is an effect of this step or of a later one."""
        self.now = now
        self._last_seq = seq = self._last_seq + 1
        config = wanted(demand, self.policy)
        retry = self.oom_retries.get(demand.model.key)
        if retry is not None:
            config = _reduced(config, retry)
        waiter = Waiter(seq, demand, self._memo.intern(config), now)
        self._enter(waiter)
        decision = arrival(self, waiter)
        if decision is None:
            self._replan()
        else:
            self._apply((decision,))
            self._tidy()
        return seq

    def leave(self, seq: int, now: int) -> None:
        """The client is gone: its place, claim and lease go in this step (I10). Harmless if it holds nothing."""
        self.now = now
        if seq not in self.waiters:
            self.release(seq, now)
            return
        waiter = self._remove(seq)
        self._publish(ev.RequestLeft(now, waiter.demand.model.name, seq, now - waiter.arrived, stage(waiter)))
        for runner in self.runners.values():
            if runner.loading and runner.key == waiter.key and difference(runner.config, waiter.wanted) is None:
                runner.finish_load = self._finishes(waiter)
        if departure_changes_nothing(self, waiter):
            self._tidy()
        else:
            self._replan()

    def release(self, seq: int, now: int, *, settled: bool = True, served: bool = False) -> None:
        """The lease ends; a no-op for a lease that is gone (I03, R13).

        `settled` False: the child may still work for it, so its slot stays taken until `slot_settled`.
        `served`: the runner answered it, so it is no crash loop.
        """
        self.now = now
        gen = self._leases.pop(seq, None)
        if gen is None:
            return
        runner = self.runners[gen]
        lease = runner.leases.pop(seq)
        if served:
            self.crashes.forget(runner.key)
        self._publish(ev.LeaseReleased(now, runner.model.name, seq, gen, len(runner.leases)))
        if lease.holds_slot:
            if settled:
                runner.held_slots -= 1
        elif lease.wants_slot:
            runner.slot_queue.remove(seq)
        self._hand_out_slots(runner)
        if not runner.leases:
            if runner.state is State.DRAINING:
                self._advance(runner, Event.STOP)
            self._replan()

    def want_slot(self, seq: int, now: int) -> bool:
        """A lease asks for a slot (again): one input of an embeddings batch (R10). False if the lease is gone."""
        self.now = now
        gen = self._leases.get(seq)
        if gen is None:
            return False
        runner = self.runners[gen]
        lease = runner.leases[seq]
        lease.wants_slot, lease.since = True, now
        runner.slot_queue.append(seq)
        self._hand_out_slots(runner)
        return True

    def return_slot(self, seq: int, now: int, *, settled: bool = True) -> None:
        """The lease gives its slot back, or stops waiting for one, but stays."""
        self.now = now
        gen = self._leases.get(seq)
        if gen is None:
            return
        runner = self.runners[gen]
        lease = runner.leases[seq]
        if lease.holds_slot:
            lease.holds_slot = False
            if settled:
                runner.held_slots -= 1
        elif lease.wants_slot:
            runner.slot_queue.remove(seq)
        lease.wants_slot = False
        self._hand_out_slots(runner)

    def slot_settled(self, gen: int, now: int) -> None:
        """The child confirmed the end of a call whose request had left before (R08)."""
        self.now = now
        runner = self.runners.get(gen)
        if runner is not None and runner.held_slots:
            runner.held_slots -= 1
            self._hand_out_slots(runner)

    # -- the life of a runner -----------------------------------------------------------------------------------

    def spawned(self, gen: int, pid: int, now: int) -> None:
        self.now = now
        runner = self.runners[gen]
        runner.pid = pid
        self._advance(runner, Event.SPAWNED)

    def spawn_failed(self, gen: int, error: str, now: int) -> None:
        self.now = now
        self._advance(self.runners[gen], Event.SPAWN_FAILED, error)
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
        self.now = now
        runner = self.runners[gen]
        if not runner.loading:
            return  # aborted in the same instant; its supervisor is already stopping it
        self._advance(runner, Event.LOADED)
        runner.context, runner.report = context or runner.config.num_ctx, report
        if taken is not None:
            self._measured(runner, taken)
            if not total_bytes:  # the child did not say: what is reserved is the best guess, and known as such (I19)
                gpu_bytes = sum(runner.holds(id_) for id_ in runner.placement.gpus)
                total_bytes = sum(amount for id_, amount in runner.reservation.items() if id_ != MODELS)
            if not gpu_bytes:
                total_bytes = max(total_bytes, taken.resident or 0)
        runner.total_bytes, runner.gpu_bytes = total_bytes, gpu_bytes
        self.oom_retries.pop(runner.key, None)
        counted = sum(other.counted for other in self.runners.values())
        took = now - self._spawned_at[gen]
        self._publish(ev.RunnerLoaded(now, runner.model.name, gen, runner.pid, took, total_bytes, gpu_bytes, counted))
        self._replan()
        if runner.closed_after is not None and runner.state is State.READY:
            # Stopped during its load: whoever it was for has its lease now (R26; fault d of the docs).
            self._drain(runner, runner.drain_because or Because.STOPPED)
            self._replan()

    def load_failed(self, gen: int, error: str, *, out_of_memory: bool, now: int) -> None:
        """The child says it cannot load; its process is stopped."""
        self.now = now
        runner = self.runners[gen]
        if not runner.loading:
            return
        runner.drain_because = Because.LOAD_FAILED
        self._advance(runner, Event.LOAD_FAILED, error, out_of_memory=out_of_memory)
        self._replan()

    def exited(self, gen: int, error: str, *, out_of_memory: bool = False, now: int) -> None:
        """The process is reaped, whatever the reason. Its leases get one error each (R80)."""
        self.now = now
        runner = self.runners[gen]
        runner.stuck = False
        self._advance(runner, Event.EXITED, error, out_of_memory=out_of_memory)
        self._replan()

    def recovered(self, gen: int, how: str, now: int) -> None:
        """Its memory is back, or nothing can be waited for."""
        self.now = now
        self._advance(self.runners[gen], Event.RECOVERED, how)
        self._replan()

    def stuck(self, gen: int, now: int) -> None:
        """Neither SIGTERM nor SIGKILL ended it: its bytes stay reserved, its key is refused (R71)."""
        self.now = now
        runner = self.runners[gen]
        if runner.state is State.STOPPING:
            runner.stuck = True
            self._publish(ev.RunnerStuck(now, runner.model.name, gen, runner.pid))
            self._replan()

    def expire(self, gen: int, now: int) -> None:
        """The keep-alive timer fired; a timer of an earlier idle period does nothing (R21)."""
        self.now = now
        runner = self.runners.get(gen)
        if runner is None or runner.state is not State.READY or runner.busy:
            return
        if runner.deadline is not None and now >= runner.deadline:
            self._drain(runner, Because.EXPIRED)
            self._replan()

    def stop(self, key: str, because: Because, now: int) -> bool:
        """Stop or delete: sticky (R25). A load serves those who wait for it now, then drains (R26)."""
        self.now = now
        found = False
        for runner in list(self.runners.values()):
            if runner.key != key:
                continue
            if runner.state is State.READY:
                found = True
                self._drain(runner, because)
            elif runner.loading:
                found = True
                if runner.closed_after is None:
                    runner.closed_after, runner.drain_because = self._last_seq, because
        if found:
            self._replan()
        return found

    def kill(self, gen: int, because: Because, error: str, now: int) -> None:
        """End a runner now, with an error for each of its leases: forced stop, hung runner, shutdown (I04)."""
        self.now = now
        runner = self.runners.get(gen)
        if runner is None or runner.state in (State.RECOVERING, State.GONE):
            return
        runner.drain_because = because
        self._publish(ev.DrainStarted(now, runner.model.name, gen, because, None, len(runner.leases)))
        self._advance(runner, Event.KILL, error, because=because)
        self._replan()

    def runtime_out_of_memory(self, now: int) -> None:
        """A running request ran out of memory: everything drains (R51)."""
        self.now = now
        for runner in list(self.runners.values()):
            if runner.state is State.READY:
                self._drain(runner, Because.RUNTIME_OOM)
        self._replan()

    def close(self, now: int) -> None:
        """Shutting down: nobody new, no spawn (I25), and whoever waits is told so; work that has begun goes on."""
        self.now = now
        self.closing = True
        for runner in self.runners.values():
            for seq in [seq for seq in runner.slot_queue if runner.leases[seq].demand.slot]:
                runner.slot_queue.remove(seq)
                del runner.leases[seq], self._leases[seq]
                self._publish(ev.RequestRefused(now, runner.model.name, seq, Because.SHUTTING_DOWN, ""))
                self._emit(Refused(seq, Because.SHUTTING_DOWN, ""))
            if not runner.leases and runner.state is State.DRAINING:
                self._advance(runner, Event.STOP)
        self._replan()

    def report(self, devices: Sequence[DeviceFacts], started: int, now: int) -> None:
        """Figures of a query that began at `started`; what did not answer has its last good value in it (I19, R65)."""
        self.now = now
        before, self.devices = self.devices, tuple(devices)
        if started >= self._changed_at:
            self._measured_at = now
        for device in self.devices:
            reserved = sum([runner.holds(device.id) for runner in self.runners.values()])
            if reserved <= device.total:
                self._overbooked.discard(device.id)
            elif device.id not in self._overbooked:
                self._overbooked.add(device.id)
                self._publish(ev.Overbooked(now, "", device.id, reserved, device.total))
        if self.devices != before or self._measuring:
            # Else nobody fares differently: that figures are fresh matters to those only who wait for it.
            self._replan()

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # -- inside a step ------------------------------------------------------------------------------------------

    def _replan(self) -> None:
        """Planner passes until nothing more follows: bounded, as each further pass has something behind it."""
        for _ in range(3 + len(self.runners) + len(self.waiters)):
            decisions = plan(self)
            self._apply(decisions)
            ended = self._settle_idle()
            if not ended and not any(_has_consequences(decision) for decision in decisions):
                break
        else:
            raise AssertionError("the planner does not come to rest")
        if self._measuring:
            self._emit(Measure())
        self._tidy()

    def _tidy(self) -> None:
        """Forget what only matters while somebody waits."""
        if self.oom_retries:
            for key in [key for key in self.oom_retries if key not in self.queues]:
                del self.oom_retries[key]
        if not self.waiters:
            self.overtakers.clear()
        self._memo.forget(unless_few=bool(self.waiters))

    def _enter(self, waiter: Waiter) -> None:
        self.waiters[waiter.seq] = waiter
        self.queues.setdefault(waiter.key, {})[waiter.seq] = waiter
        for gen in sorted(waiter.claim):
            self.runners[gen].claimed_by = waiter.seq

    def _remove(self, seq: int) -> Waiter:
        """The waiter leaves the queue, and its claim goes with it (I10)."""
        waiter = self.waiters.pop(seq)
        queue = self.queues[waiter.key]
        del queue[seq]
        if not queue:
            del self.queues[waiter.key]
        self._set_claim(waiter, frozenset())
        self._measuring.discard(seq)
        return waiter

    def _set_claim(self, waiter: Waiter, gens: frozenset[int]) -> None:
        for gen in sorted(waiter.claim - gens):
            if self.runners[gen].claimed_by == waiter.seq:
                self.runners[gen].claimed_by = None
        for gen in sorted(gens):
            self.runners[gen].claimed_by = waiter.seq
        for gen in sorted(waiter.claim ^ gens):
            self._emit(Rearm(gen))  # somebody waits for its requests to end, or no longer (R81)
        waiter.claim = gens

    def _apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Grant():
                    self._grant(decision)
                case StartLoad():
                    self._start(decision)
                case Abort(gen=gen):
                    runner = self.runners[gen]
                    runner.drain_because = decision.because
                    self._publish(ev.DrainStarted(self.now, runner.model.name, gen, decision.because, None, 0))
                    self._advance(runner, Event.ABORT)
                case Drain(gen=gen):
                    self._drain(self.runners[gen], decision.because, decision)
                case Claim(seq=seq, gens=gens):
                    self._set_claim(self.waiters[seq], gens)
                case Refuse(seq=seq):
                    name = self._remove(seq).demand.model.name
                    self._publish(ev.RequestRefused(self.now, name, seq, decision.because, decision.facts))
                    self._emit(Refused(seq, decision.because, decision.facts))
                case Wait(seq=seq):
                    self._wait(self.waiters[seq], decision)

    def _wait(self, waiter: Waiter, wait: Wait) -> None:
        if waiter.wait is None or waiter.wait.because is not wait.because:
            name = waiter.demand.model.name
            self._publish(ev.RequestWaits(self.now, name, waiter.seq, wait.because, wait.by, wait.resource, wait.bytes))
            waiter.since = self.now
        waiter.wait = wait
        waiter.behind = wait.by if wait.because is Because.BEHIND_OWN_MODEL else None
        if wait.because is Because.MEASURING:
            self._measuring.add(waiter.seq)
            # It may still turn out to get its load at once, and is not refused before that is known (I13).
            waiter.admitted = waiter.admitted or self.waiting <= self.policy.queue_bound
        else:
            self._measuring.discard(waiter.seq)
            waiter.admitted = True

    def _grant(self, grant: Grant) -> None:
        waiter, runner = self._remove(grant.seq), self.runners[grant.gen]
        demand = waiter.demand
        runner.leases[grant.seq] = Lease(grant.seq, demand, wants_slot=demand.slot, since=self.now)
        runner.served += 1
        self._leases[grant.seq] = grant.gen
        if demand.keep_alive is not None:
            runner.keep_alive = demand.keep_alive  # the last granted wins (R24)
        if grant.overtook:
            oldest = next(iter(self.waiters), grant.seq)
            for id_ in runner.reservation:
                seqs = self.overtakers.setdefault(id_, [])
                insort(seqs, grant.seq)
                del seqs[: bisect_left(seqs, oldest)]
        waited = self.now - waiter.arrived
        name = runner.model.name
        self._publish(
            ev.LeaseGranted(self.now, name, grant.seq, grant.gen, grant.because, grant.slot, waited, grant.overtook)
        )
        self._emit(Granted(grant.seq, grant.gen))
        if demand.slot:
            runner.slot_queue.append(grant.seq)
            self._hand_out_slots(runner)
        self._disarm(runner)

    def _start(self, start: StartLoad) -> None:
        waiter = self.waiters[start.seq]
        self._last_gen = gen = self._last_gen + 1
        loaded = [runner for runner in self.runners.values() if runner.counted]
        config, why_not_mapped = launchable(
            start.config, waiter.demand.model, start.placement, self.devices, loaded, self.policy
        )
        self.runners[gen] = Runner(
            gen,
            waiter.demand.model,
            config,
            start.placement,
            start.placement.reservation,
            self.policy.keep_alive,  # until the first grant (G29)
            finish_load=self._finishes(waiter),
        )
        self._spawned_at[gen] = self.now
        where = tuple((id_, amount) for id_, amount in start.placement.reservation.items() if id_ != "models")
        self._publish(
            ev.LoadStarted(
                self.now,
                waiter.demand.model.name,
                gen,
                start.seq,
                start.because,
                start.placement.kind,
                start.placement.gpus,
                where,
                config.num_ctx,
                config.num_batch,
                config.parallel,
                why_not_mapped,
                start.free,
                start.alternatives,
                notes(waiter.demand, self.devices, self.policy),
            )
        )
        self._emit(Spawn(gen))

    def _drain(self, runner: Runner, because: Because, wanted_by: Drain | None = None) -> None:
        runner.drain_because = because
        name, seq = runner.model.name, None if wanted_by is None else wanted_by.seq
        facts = () if wanted_by is None else (wanted_by.resource, wanted_by.bytes, wanted_by.alternatives)
        self._publish(ev.DrainStarted(self.now, name, runner.gen, because, seq, len(runner.leases), *facts))
        self._advance(runner, Event.DRAIN)
        if not runner.leases:
            self._advance(runner, Event.STOP)
        else:
            self._emit(Rearm(runner.gen))

    def _advance(
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
                    self._close(runner)
                case Consequence.STOP:
                    self._emit(Stop(runner.gen, kill=because not in (None, Because.SHUTDOWN)))
                case Consequence.STALE_FIGURES:
                    # Figures from before this exit are worth nothing to the next load (R35).
                    self._measured_at, self._changed_at = None, self.now
                case Consequence.FAIL_LOAD:
                    self._load_failure(runner, text, out_of_memory=out_of_memory)
                case Consequence.FAIL_WAITERS:
                    self._fail_waiters(runner, text)
                case Consequence.NOTE_CRASH:
                    self.crashes.note(runner.key, text, self.now)
                case Consequence.LOSE_LEASES:
                    self._lose_leases(runner, because, text)
                case Consequence.FORGET:
                    self._forget(runner, text)

    def _settle_idle(self) -> bool:
        """Start the keep-alive of runners that have become idle and stay so (I15); True if one ended at once."""
        ended = False
        for runner in self.runners.values():
            if runner.state is not State.READY or runner.busy or runner.armed:
                continue
            if runner.keep_alive <= 0:
                self._drain(runner, Because.EXPIRED)
                ended = True
                continue
            runner.armed = True
            if runner.keep_alive != FOREVER:
                runner.deadline = self.now + runner.keep_alive
            self._emit(Rearm(runner.gen))
        return ended

    def _measured(self, runner: Runner, taken: Taken) -> None:
        """What it holds takes the place of the estimate; how far that was off is kept, and told if it is too much."""
        verdict = verdict_on(runner, taken, self.devices, self.policy)
        runner.reservation, runner.observation = verdict.reservation, verdict.observation
        config = runner.config
        for where, expected, found in verdict.too_low:
            self._publish(
                ev.Underestimated(
                    self.now,
                    runner.model.name,
                    runner.gen,
                    where,
                    expected,
                    found,
                    config.num_ctx,
                    config.parallel,
                    config.num_batch,
                    learnt=verdict.observation is not None,
                )
            )

    def _finishes(self, waiter: Waiter) -> bool:
        wish = waiter.demand.finish_load
        return self.policy.finish_abandoned_load if wish is None else wish

    def _close(self, runner: Runner) -> None:
        """It has left `ready`: nobody claims what goes already, and no keep-alive ends it."""
        if runner.claimed_by is not None:
            self.waiters[runner.claimed_by].claim -= {runner.gen}
            runner.claimed_by = None
        self._disarm(runner)

    def _disarm(self, runner: Runner) -> None:
        if runner.armed:
            runner.armed, runner.deadline = False, None
            self._emit(Rearm(runner.gen))

    def _hand_out_slots(self, runner: Runner) -> None:
        while runner.slot_queue and runner.held_slots < runner.slots:
            seq = runner.slot_queue.popleft()
            lease = runner.leases[seq]
            lease.holds_slot, lease.since = True, self.now
            runner.held_slots += 1
            self._emit(SlotGranted(seq))

    def _load_failure(self, runner: Runner, error: str, *, out_of_memory: bool) -> None:
        """One retry for a load that ran out of memory (R48, R49); else all its waiters get the error, once each."""
        key = runner.key
        if out_of_memory and key not in self.oom_retries and not self.closing:
            config = runner.config
            reduced = step_down(config.num_ctx, config.train_context) if config.num_ctx_auto else None
            others = any(other is not runner and not other.stuck for other in self.runners.values())
            eyes = bool(config.projectors and runner.placement.gpus) and not config.projector_on_cpu
            if reduced is not None or others or eyes:
                self.oom_retries[key] = retry = OomRetry(reduced, alone=others, projector_on_cpu=eyes)
                self._publish(ev.RetryPlanned(self.now, runner.model.name, reduced, others, error, eyes))
                for waiter in self.waiters.values():
                    if waiter.key == key:
                        config = _reduced(waiter.wanted, retry)
                        waiter.wanted = self._memo.intern(config)
                return
        if not out_of_memory:
            self.crashes.note(key, error, self.now)
        self._fail_waiters(runner, error)

    def _fail_waiters(self, runner: Runner, error: str) -> None:
        failed = [
            seq
            for seq, waiter in self.waiters.items()
            if waiter.key == runner.key and runner.open_to(seq) and difference(runner.config, waiter.wanted) is None
        ]
        self.oom_retries.pop(runner.key, None)
        self._publish(ev.LoadFailed(self.now, runner.model.name, runner.gen, error, len(failed)))
        because = Because.FORCED if runner.drain_because is Because.FORCED else Because.LOAD_FAILED
        for seq in failed:
            self._remove(seq)
            self._emit(Refused(seq, because, error))

    def _lose_leases(self, runner: Runner, because: Because | None, error: str) -> None:
        for seq in runner.leases:
            del self._leases[seq]
            self._publish(ev.LeaseLost(self.now, runner.model.name, seq, runner.gen, error))
            self._emit(Lost(seq, because, error))
        runner.leases.clear()
        runner.slot_queue.clear()
        runner.held_slots = 0

    def _forget(self, runner: Runner, how: str) -> None:
        del self.runners[runner.gen]
        del self._spawned_at[runner.gen]
        self._publish(ev.RunnerGone(self.now, runner.model.name, runner.gen, how))

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _publish(self, event: ev.Event) -> None:
        self._on_event(event)


def _has_consequences(decision: Decision) -> bool:
    """Whether others may fare differently after it. A last call makes a runner busy that was claimed while idle."""
    match decision:
        case StartLoad() | Abort() | Drain() | Refuse():
            return True
        case Grant(because=because):
            return because is Because.LAST_CALL
        case _:
            return False


def _reduced(config: LaunchConfig, retry: OomRetry) -> LaunchConfig:
    """`config` for an out-of-memory retry; an explicit context is never changed (R49)."""
    config = replace(config, projector_on_cpu=True) if retry.projector_on_cpu else config
    if retry.num_ctx is None or not config.num_ctx_auto or config.num_ctx <= retry.num_ctx:
        return config
    return replace(config, num_ctx=retry.num_ctx)
