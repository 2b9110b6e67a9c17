"""One task per runner generation: it owns the child from its start until it is reaped and its memory is back.

spawn -> load -> ready -> drain -> stop -> recover -> gone. What happens is decided by the fleet; the supervisor acts
on it (stop sequence, keep-alive deadline, watchdogs) and tells the fleet what it sees.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from trio_ollama.runners.contract import LoadFailedError, LoadReport, OpenCall, Runner, RunnerFactory, SpawnError
from trio_ollama.runners.contract import looks_like_out_of_memory as out_of_memory

from .core.decisions import Because
from .core.events import human_bytes
from .core.lifecycle import ALIVE, State
from .core.values import MODELS, RAM
from .feedback import taken
from .launch import launch_spec
from .recovery import Sighting, recover, sighting

if TYPE_CHECKING:
    from .scheduler import Scheduler

__all__ = ["Supervisor"]

log = logging.getLogger("trio_ollama.scheduler")


class Supervisor:
    def __init__(self, scheduler: Scheduler, gen: int, factory: RunnerFactory) -> None:
        self._scheduler = scheduler
        self._factory = factory
        self._limits = scheduler.limits
        self.gen = gen
        self.record = scheduler.fleet.runners[gen]
        self.process: Runner | None = None
        self._nursery: trio.Nursery | None = None
        self._stop = trio.Event()
        self._kill = trio.Event()
        self._rearmed = trio.Event()
        self._asleep_until = -math.inf
        self._awaited_since = math.inf
        self._progress_at = -math.inf
        self._free_at_start = self._free()
        self._free_at_stop: Mapping[str, int] | None = None
        self._seen: dict[str, Sighting] = {}
        """By GPU, once it is loaded."""
        self._recovery = "its memory was not waited for"

    # -- asked by the scheduler, synchronously --------------------------------------------------------------------

    def stop(self, *, kill: bool) -> None:
        """Begin the stop sequence, without grace if `kill`."""
        if not self._stop.is_set():
            self._free_at_stop = self._free()
        self._stop.set()
        if kill:
            self._kill.set()

    def rearm(self) -> None:
        """The deadline, or the state that has one, changed. Who sleeps for less than that need not be woken."""
        if self._due() < self._asleep_until:
            self._rearmed.set()

    def progress(self) -> None:
        """A request got something from the child."""
        self._progress_at = trio.current_time()

    def confirm(self, calls: Sequence[OpenCall]) -> None:
        """A request left its calls early: its slot is free when the child says so (R08)."""
        if self._nursery is not None:
            self._nursery.start_soon(self._confirm, calls, name=f"runner {self.gen}: abort")

    # -- the task -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the runner is gone. An unexpected fault ends this runner and its leases, nothing else."""
        try:
            await self._live()
        except* Exception as faults:
            await self._put_down(faults)
        finally:
            self._note_end()
            if self.record.state is State.RECOVERING:
                self._step(self._scheduler.fleet.recovered, self.gen, self._recovery)

    async def _put_down(self, faults: BaseExceptionGroup[Exception]) -> None:
        """Something happened that nobody thought of: the process must not outlive it, nor anybody wait for it."""
        log.error("the supervisor of %s (%d) failed", self.record.model.name, self.gen, exc_info=faults)
        if self.process is None or self.process.exited is not None:
            return
        self.process.kill()
        self._scheduler.kill(self.gen, Because.FAULT, "the model runner failed unexpectedly")
        try:
            with trio.move_on_after(self._limits.kill_wait, shield=True):
                await self.process.serve()
        except* Exception as more:
            log.error("its process cannot be watched any more", exc_info=more)

    async def _live(self) -> None:
        """From the start of the process until its memory is back."""
        await self._own_process()
        if self._free_at_stop is None and self.process is not None:
            # It ended by itself, and nobody has looked since: the last figures still show it, or know nothing of it.
            self._free_at_stop = self._free()
        if self.record.state is State.RECOVERING:
            self._recovery = await recover(
                {id_: held for id_, held in self.record.reservation.items() if id_ not in (RAM, MODELS)},
                self._free_at_stop,
                # What was free before a load that came to its end says little: others have come and gone since.
                self._free_at_start if self.record.report is None else {},
                self._scheduler.measure,
                limit=self._limits.recovery,
                poll=self._limits.recovery_poll,
                pid=self.process.pid if self.process is not None else 0,
                seen=self._seen,
                processes=self._scheduler.processes,
            )

    async def _own_process(self) -> None:
        fleet = self._scheduler.fleet
        await trio.lowlevel.checkpoint_if_cancelled()  # the end of the scheduler: nothing starts any more (R68)
        if self.record.state is State.STOPPING:
            self._step(fleet.spawn_failed, self.gen, "nobody waited for it any more")
            return
        try:
            # Synchronous: the process has its owner before the first checkpoint (R68).
            self.process = process = self._factory.spawn(launch_spec(self.record, fleet.policy, fleet.devices))
        except SpawnError as error:
            self._step(fleet.spawn_failed, self.gen, str(error))
            return
        self._step(fleet.spawned, self.gen, process.pid)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._load, process, name=f"runner {self.gen}: load")
            nursery.start_soon(self._keep_time, name=f"runner {self.gen}: deadlines")
            nursery.start_soon(self._stop_sequence, process, name=f"runner {self.gen}: stop")
            try:
                await process.serve()
            finally:
                self._nursery = None  # its slots do not matter any more
            self._note_end()
            nursery.cancel_scope.cancel("the process has ended")

    def _note_end(self) -> None:
        """Tell the fleet how the process ended, in the step in which it is known; nothing if it knows already."""
        if self.record.state not in ALIVE:
            return
        if self.process is None:
            self._step(self._scheduler.fleet.spawn_failed, self.gen, "the model runner could not be started")
            return
        end = self.process.exited
        if end is None:
            self._scheduler.kill(self.gen, Because.FAULT, "the model runner cannot be ended")
            self._step(self._scheduler.fleet.stuck, self.gen)
            return
        text = end.describe()
        self._scheduler.step(
            lambda now: self._scheduler.fleet.exited(
                self.gen,
                f"llama-server process has terminated: {text}",
                out_of_memory=out_of_memory("\n".join(end.lines)),
                now=now,
            )
        )

    async def _load(self, process: Runner) -> None:
        fleet = self._scheduler.fleet
        try:
            report = await process.ready(self._limits.load_stall)
        except LoadFailedError as error:
            text, memory = str(error), error.out_of_memory
            self._scheduler.step(lambda now: fleet.load_failed(self.gen, text, out_of_memory=memory, now=now))
            return
        self._scheduler.step(
            lambda now: fleet.loaded(
                self.gen,
                context=report.context,
                total_bytes=report.total_bytes,
                gpu_bytes=report.gpu_bytes,
                report=report,
                now=now,
                taken=taken(report, self.record.placement.gpus),
            )
        )
        if self.record.observation is not None:
            self._scheduler.feedback.note(self.record.model, self.record.observation)
        self._tell_what_is_missing(report)
        # The last look at free memory was before the load. A later stop compares with one that shows it (R31).
        await self._look(process)

    def _tell_what_is_missing(self, report: LoadReport) -> None:
        """A model that was to be on GPUs must not be on the CPU without a word: it is that much slower for its life."""
        placement = self.record.placement
        whole = placement.kind in ("single", "group") and self.record.config.num_gpu < 0
        if placement.gpus and (report.gpu_bytes == 0 or (whole and report.gpu_bytes < report.total_bytes)):
            log.warning(
                "%s (generation %d) was to be on %s, but its runner has put %s of %s there",
                self.record.model.name,
                self.gen,
                ", ".join(placement.gpus),
                human_bytes(report.gpu_bytes),
                human_bytes(report.total_bytes),
            )

    async def _look(self, process: Runner) -> None:
        """Measure, and see what the driver says of this runner."""
        devices = {device.id: device for device in await self._scheduler.measure()}
        for id_ in self.record.reservation:
            if (device := devices.get(id_)) is not None and device.gpu:
                seen = sighting(process.pid, await self._scheduler.processes(id_), device)
                if seen is not None:
                    self._seen[id_] = seen

    async def _keep_time(self) -> None:
        """Keep-alive while idle; and while somebody waits for its requests to end, the bound D on getting nothing.

        Both a drain and a claim are such a wait: neither may last for ever because the child hangs (R81, I21). An idle
        runner keeps its deadline when it is claimed (I15): nobody waits for requests that are not there.
        """
        limit = self._limits.drain_progress
        while True:
            self._rearmed, self._asleep_until = trio.Event(), self._due()
            with trio.move_on_at(self._asleep_until):
                await self._rearmed.wait()
                continue
            # Requests of this very instant come first (R21).
            await trio.lowlevel.checkpoint()
            if trio.current_time() < self._due():
                continue  # it was put off in the meantime
            if self._awaited_since == math.inf:
                self._step(self._scheduler.fleet.expire, self.gen)
            else:
                self._scheduler.kill(self.gen, Because.HUNG, f"no answer from the model for {limit:g} s")

    def _due(self) -> float:
        """When to act, if nothing happens until then."""
        record = self.record
        if record.busy and (record.state is State.DRAINING or record.claimed_by is not None):
            self._awaited_since = min(self._awaited_since, trio.current_time())
            return max(self._awaited_since, self._progress_at) + self._limits.drain_progress
        self._awaited_since = math.inf
        return math.inf if record.deadline is None else record.deadline / 1e9

    async def _stop_sequence(self, process: Runner) -> None:
        """SIGTERM, G, SIGKILL, K, then give up and say so (R71). Ends early with the process."""
        await self._stop.wait()
        if not self._kill.is_set():
            await self._look_before_the_end(process)
            process.terminate()
            with trio.move_on_after(self._limits.stop_grace):
                await self._kill.wait()
        process.kill()
        await trio.sleep(self._limits.kill_wait)
        self._step(self._scheduler.fleet.stuck, self.gen)

    async def _look_before_the_end(self, process: Runner) -> None:
        """The last figures may be as old as the load, and others come and go: compared with those, what they gave back
        would look like the runner's memory, and what they took would hide it (R31, R35)."""
        if self._scheduler.fleet.closing or not self.record.placement.gpus:
            return
        with trio.move_on_after(self._limits.recovery_poll):
            await self._look(process)
            self._free_at_stop = self._free()

    async def _confirm(self, calls: Sequence[OpenCall]) -> None:
        limit = self._limits.abort_confirm
        with trio.move_on_after(limit) as scope:
            await self._settled(calls)
        if scope.cancelled_caught:
            self._scheduler.kill(
                self.gen, Because.HUNG, f"the model did not let go of a cancelled request within {limit:g} s"
            )
        else:
            self._step(self._scheduler.fleet.slot_settled, self.gen)

    @staticmethod
    async def _settled(calls: Sequence[OpenCall]) -> None:
        for call in calls:
            await call.settled.wait()

    def _free(self) -> Mapping[str, int]:
        return {device.id: device.reported_free for device in self._scheduler.fleet.devices}

    def _step(self, method: Callable[..., object], *args: object) -> None:
        self._scheduler.step(lambda now: method(*args, now))
