"""Loads: how one begins, what it turns out to take, and what becomes of those who wait for one that fails."""

from __future__ import annotations

from dataclasses import replace

from .config import launchable, notes, wanted
from .context import step_down
from .crashes import CrashLog
from .decisions import Because, StartLoad
from .effects import Refused, Spawn
from .events import LoadFailed, LoadStarted, RetryPlanned, RunnerLoaded, Underestimated
from .figures import Figures
from .measured import Taken, verdict_on
from .memo import Memo
from .queue import Queue
from .records import OomRetry, Runner, Waiter
from .reload import difference
from .step import Step
from .values import MODELS, Demand, LaunchConfig, Policy

__all__ = ["Loads"]


class Loads:
    def __init__(
        self,
        policy: Policy,
        step: Step,
        runners: dict[int, Runner],
        queue: Queue,
        figures: Figures,
        crashes: CrashLog,
        memo: Memo,
    ) -> None:
        self.retries: dict[str, OomRetry] = {}
        """By model key, as long as somebody waits for it (R48)."""
        self.last_gen = 0
        self._policy = policy
        self._step = step
        self._runners = runners
        self._queue = queue
        self._figures = figures
        self._crashes = crashes
        self._memo = memo

    def configuration(self, demand: Demand) -> LaunchConfig:
        """What a newcomer's runner has to be launched with: as it asks, but for what a failed load has taught."""
        config = wanted(demand, self._policy)
        retry = self.retries.get(demand.model.key)
        return self._memo.intern(config if retry is None else _reduced(config, retry))

    def begin(self, start: StartLoad) -> None:
        """A new generation, from now on known to everybody; its process is for the shell to start."""
        waiter = self._queue.waiters[start.seq]
        model, placement, devices = waiter.demand.model, start.placement, self._figures.devices
        loaded = [runner for runner in self._runners.values() if runner.counted]
        config, why_not_mapped = launchable(start.config, model, placement, devices, loaded, self._policy)
        self.last_gen = gen = self.last_gen + 1
        self._runners[gen] = Runner(
            gen,
            model,
            config,
            placement,
            placement.reservation,
            self._policy.keep_alive,  # until the first grant (G29)
            began=self._step.now,
            finish_load=self._finishes(waiter),
        )
        self._step.publish(
            LoadStarted(
                self._step.now,
                model.name,
                gen,
                start.seq,
                start.because,
                placement.kind,
                placement.gpus,
                tuple((id_, amount) for id_, amount in placement.reservation.items() if id_ != MODELS),
                config.num_ctx,
                config.num_batch,
                config.parallel,
                why_not_mapped,
                start.free,
                start.alternatives,
                notes(waiter.demand, devices, self._policy),
            )
        )
        self._step.emit(Spawn(gen))

    def left(self, waiter: Waiter) -> None:
        """Somebody waits no more for the load of its model: the wish of whoever waited last decides on it (R03)."""
        for runner in self._runners.values():
            if runner.loading and runner.key == waiter.key and difference(runner.config, waiter.wanted) is None:
                runner.finish_load = self._finishes(waiter)

    def done(
        self, runner: Runner, *, context: int, total_bytes: int, gpu_bytes: int, report: object, taken: Taken | None
    ) -> None:
        """The child is ready, with this context and these bytes; zeros where it does not say."""
        runner.context, runner.report = context or runner.config.num_ctx, report
        if taken is not None:
            self._measured(runner, taken)
            if not total_bytes:  # the child did not say: what is reserved is the best guess, and known as such (I19)
                gpu_bytes = sum(runner.holds(id_) for id_ in runner.placement.gpus)
                total_bytes = sum(amount for id_, amount in runner.reservation.items() if id_ != MODELS)
            if not gpu_bytes:
                total_bytes = max(total_bytes, taken.resident or 0)
        runner.total_bytes, runner.gpu_bytes = total_bytes, gpu_bytes
        self.retries.pop(runner.key, None)
        counted = sum(other.counted for other in self._runners.values())
        now, name, took = self._step.now, runner.model.name, self._step.now - runner.began
        self._step.publish(RunnerLoaded(now, name, runner.gen, runner.pid, took, total_bytes, gpu_bytes, counted))

    def failed(self, runner: Runner, error: str, *, out_of_memory: bool) -> None:
        """One retry for a load that ran out of memory (R48, R49); else all its waiters get the error, once each."""
        if out_of_memory and self._tried_again(runner, error):
            return
        if not out_of_memory:
            self._crashes.note(runner.key, error, self._step.now)
        self.give_up(runner, error)

    def give_up(self, runner: Runner, error: str) -> None:
        """Whoever waits for this load gets the error, and goes."""
        failed = [
            seq
            for seq, waiter in self._queue.waiters.items()
            if waiter.key == runner.key and runner.open_to(seq) and difference(runner.config, waiter.wanted) is None
        ]
        self.retries.pop(runner.key, None)
        self._step.publish(LoadFailed(self._step.now, runner.model.name, runner.gen, error, len(failed)))
        because = Because.FORCED if runner.drain_because is Because.FORCED else Because.LOAD_FAILED
        for seq in failed:
            self._queue.remove(seq)
            self._step.emit(Refused(seq, because, error))

    def tidy(self) -> None:
        """A retry is nobody's once nobody waits for the model any more."""
        for key in [key for key in self.retries if key not in self._queue.by_model]:
            del self.retries[key]

    def _tried_again(self, runner: Runner, error: str) -> bool:
        """What may help against a lack of memory is done next time, if there is anything; True if so."""
        key, config = runner.key, runner.config
        if key in self.retries or self._queue.closed:
            return False
        reduced = step_down(config.num_ctx, config.train_context) if config.num_ctx_auto else None
        others = any(other is not runner and not other.stuck for other in self._runners.values())
        eyes = bool(config.projectors and runner.placement.gpus) and not config.projector_on_cpu
        if reduced is None and not others and not eyes:
            return False
        self.retries[key] = retry = OomRetry(reduced, alone=others, projector_on_cpu=eyes)
        self._step.publish(RetryPlanned(self._step.now, runner.model.name, reduced, others, error, eyes))
        for waiter in self._queue.by_model.get(key, {}).values():
            waiter.wanted = self._memo.intern(_reduced(waiter.wanted, retry))
        return True

    def _measured(self, runner: Runner, taken: Taken) -> None:
        """What it holds takes the place of the estimate; how far that was off is kept, and told if it is too much."""
        verdict = verdict_on(runner, taken, self._figures.devices, self._policy)
        runner.reservation, runner.observation = verdict.reservation, verdict.observation
        config = runner.config
        for where, expected, found in verdict.too_low:
            self._step.publish(
                Underestimated(
                    self._step.now,
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
        return self._policy.finish_abandoned_load if wish is None else wish


def _reduced(config: LaunchConfig, retry: OomRetry) -> LaunchConfig:
    """`config` for an out-of-memory retry; an explicit context is never changed (R49)."""
    config = replace(config, projector_on_cpu=True) if retry.projector_on_cpu else config
    if retry.num_ctx is None or not config.num_ctx_auto or config.num_ctx <= retry.num_ctx:
        return config
    return replace(config, num_ctx=retry.num_ctx)
