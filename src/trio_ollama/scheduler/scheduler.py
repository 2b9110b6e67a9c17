"""The scheduler: who may use which runner. A thin shell around the fleet, which decides everything.

    scheduler (this nursery)
    ├── measure                    one query of the machine at a time, when figures are wanted
    ├── feedback                   keeps what loads have taken
    └── runner N (supervisor)      one per generation

Every change is one synchronous step of the fleet; `step` runs it and performs its effects before anybody else runs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from trio_ollama.hardware.contract import Hardware, MachineReport
from trio_ollama.runners.contract import OpenCall, RunnerDiedError, RunnerFactory

from .core import effects as ef
from .core.decisions import Because
from .core.events import Event
from .core.fit import Fit
from .core.fitting import fit
from .core.fleet import Fleet
from .core.lifecycle import ALIVE, State
from .core.values import Demand, DeviceFacts, Policy
from .errors import ForcedStopError, ShuttingDownError, refusal
from .facts import HardwareFacts
from .feedback import Feedback
from .lease import Lease
from .limits import Limits
from .supervisor import Supervisor
from .tickets import Ticket
from .views import Holding, RequestView, RunnerView

__all__ = ["Scheduler", "log_event"]

log = logging.getLogger("trio_ollama.scheduler")

REMEMBERED = 1024
"""Events that are kept for later readers."""


def log_event(event: Event) -> None:
    """What becomes of an event unless somebody else wants it."""
    if log.isEnabledFor(event.level):
        log.log(event.level, "%s", event.text())


class Scheduler:
    """`await nursery.start(scheduler.run)`; cancel that nursery to end every runner."""

    def __init__(
        self,
        *,
        hardware: Hardware,
        runners: RunnerFactory,
        policy: Policy,
        limits: Limits | None = None,
        gpu_overhead: int = 0,
        on_event: Callable[[Event], None] = log_event,
        feedback: Feedback | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.feedback = feedback or Feedback()
        self._recent: deque[Event] = deque(maxlen=REMEMBERED)
        self._on_event = on_event
        self.fleet = Fleet(policy, self._remember)
        self._facts = HardwareFacts(hardware, overhead=gpu_overhead, deadline=self.limits.query)
        self._runners = runners
        self._nursery: trio.Nursery | None = None
        self._supervisors: dict[int, Supervisor] = {}
        self._tickets: dict[int, Ticket] = {}
        self._unannounced: deque[Ticket] = deque()
        """Requests that wait for fresh figures before the fleet hears of them, in order of arrival."""
        self._wanted = trio.Event()
        self._steps = 0
        self._changed: trio.Event | None = None
        """If somebody waits for the next step."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own all runners until cancelled; every child is reaped by then."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await self.measure()
                nursery.start_soon(self._measure, name="measure")
                if self.feedback.lasting:
                    nursery.start_soon(self.feedback.run, name="feedback")
                task_status.started()
                await trio.sleep_forever()
            finally:
                # Before the nursery takes nobody any more: whoever still waits, or comes now, is told so (R68).
                self.close()

    # -- requests -----------------------------------------------------------------------------------------------

    async def acquire(self, demand: Demand, asker: object = None) -> Lease:
        """A lease on a ready runner for `demand`, with a slot if it asks for one. `asker` comes back in `requests`.

        Cancel-safe: cancelled at any point it holds nothing, one step later. Raises a `SchedulingError`, or
        `LoadFailedError` with the runner's reason.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.fleet.closing:
            raise ShuttingDownError
        demand = self.feedback.informed(demand)
        ticket = Ticket(demand, asker)
        if self.fleet.can_grant(demand) or self._figures_are_fresh():
            self.step(partial(self._announce, ticket))
        else:
            self._unannounced.append(ticket)
            self._wanted.set()
        try:
            await ticket.settled.wait()
        except BaseException:
            self._leave(ticket)
            raise
        if ticket.error is not None:
            self._tickets.pop(ticket.seq, None)
            raise ticket.error
        # No checkpoint from here to the caller: the lease has exactly one owner (R05).
        assert ticket.gen is not None
        supervisor = self._supervisors[ticket.gen]
        assert supervisor.process is not None
        return Lease(self, ticket, supervisor, supervisor.process)

    def stop(self, key: str, because: Because = Because.STOPPED) -> bool:
        """Drain the runner of a model key; sticky and idempotent. False if there is none."""
        found = False

        def stop(now: int) -> None:
            nonlocal found
            found = self.fleet.stop(key, because, now)

        self.step(stop)
        return found

    def force_stop(self, key: str) -> tuple[RunnerView, ...]:
        """End the processes of a model key now; their leases, and whoever waits for a load, get an error (I04).

        Returns what was there, as it was before. Requests that wait for a runner yet to come go on waiting.
        """
        found = self.runners_of(key)
        for view in found:
            self.kill(view.gen, Because.FORCED, "the model was stopped")
        return found

    def kill(self, gen: int, because: Because, error: str) -> None:
        """End a generation now; its leases get `error`."""
        self.step(lambda now: self.fleet.kill(gen, because, error, now))

    def runtime_out_of_memory(self) -> None:
        self.step(self.fleet.runtime_out_of_memory)

    # -- introspection --------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[RunnerView, ...]:
        """The ready and draining runners, as they are at this moment; immutable (I20)."""
        now = self._now()
        return tuple(
            RunnerView.of(runner, now)
            for runner in self.fleet.runners.values()
            if runner.state in (State.READY, State.DRAINING)
        )

    def runners_of(self, key: str) -> tuple[RunnerView, ...]:
        """The runners of a model key that have a process, or are about to: also those that load or end."""
        now = self._now()
        return tuple(
            RunnerView.of(runner, now)
            for runner in self.fleet.runners.values()
            if runner.key == key and runner.state in ALIVE
        )

    def requests(self) -> tuple[RequestView, ...]:
        """Who waits for what and who uses which runner at this moment, in order of arrival; immutable (I20)."""
        positions = {seq: position for position, seq in enumerate(self.fleet.waiters, 1)}
        tickets = (*(self._tickets[seq] for seq in sorted(self._tickets)), *self._unannounced)
        views = (RequestView.of(self.fleet, ticket, positions) for ticket in tickets)
        return tuple(view for view in views if view is not None)

    def recent(self) -> tuple[Event, ...]:
        """The last decisions and what came of them, oldest first; at most `REMEMBERED`."""
        return tuple(self._recent)

    def devices(self) -> Sequence[DeviceFacts]:
        """The machine as last measured."""
        return self.fleet.devices

    def machine(self) -> MachineReport:
        """The machine as last measured, with the devices that are not used, and why; for people."""
        return self._facts.report()

    def holdings(self, device: str) -> tuple[Holding, ...]:
        """For whom bytes of a device are reserved."""
        return tuple(
            Holding(runner.gen, runner.model.name, runner.state.value, runner.pid, runner.holds(device))
            for runner in self.fleet.runners.values()
            if runner.holds(device)
        )

    def fit(self, demand: Demand, parallel: int | None = None) -> Fit:
        """Where `demand` would be served at this moment, and why; nothing is changed.

        `parallel`: another number of slots than the one that is set.
        """
        policy = self.fleet.policy
        if parallel is not None:
            policy = replace(policy, num_parallel=parallel)
        return fit(self.fleet, self.feedback.informed(demand), policy)

    async def refresh(self) -> None:
        """Have fresh figures of the machine, unless they are anyway."""
        if self._figures_are_fresh():
            await trio.lowlevel.checkpoint()
        else:
            await self.measure()

    # -- shutdown -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse everybody new, and all who still wait; leases go on. Idempotent."""
        if not self.fleet.closing:
            self.step(self.fleet.close)
            self._announce_all()

    async def drained(self) -> None:
        """Wait until no lease is left."""
        while any(runner.leases for runner in self.fleet.runners.values()):
            await self._change()

    async def stop_all(self) -> None:
        """Stop every runner with the usual sequence and wait for it, at most grace and kill wait together."""
        for gen, runner in list(self.fleet.runners.items()):
            if runner.state in ALIVE:
                self.kill(gen, Because.SHUTDOWN, "server is shutting down")
        with trio.move_on_after(self.limits.stop_grace + self.limits.kill_wait):
            await trio.lowlevel.checkpoint()
            while any(runner.state in ALIVE for runner in self.fleet.runners.values()):
                await self._change()

    def _remember(self, event: Event) -> None:
        self._recent.append(event)
        self._on_event(event)

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self, change: Callable[[int], object]) -> None:
        """Run one synchronous change of the fleet and perform what follows from it."""
        change(self._now())
        for effect in self.fleet.take_effects():
            self._perform(effect)
        self._steps += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _change(self) -> None:
        """Until something may have changed."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _perform(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Spawn(gen=gen):
                supervisor = Supervisor(self, gen, self._runners)
                self._supervisors[gen] = supervisor
                assert self._nursery is not None, "the scheduler does not run"
                self._nursery.start_soon(self._supervise, supervisor, name=f"runner {gen}")
            case ef.Stop(gen=gen, kill=kill):
                self._supervisors[gen].stop(kill=kill)
            case ef.Rearm(gen=gen):
                self._supervisors[gen].rearm()
            case ef.Granted(seq=seq, gen=gen):
                ticket = self._tickets[seq]
                ticket.gen = gen
                if not ticket.demand.slot:
                    ticket.settled.set()
            case ef.SlotGranted(seq=seq):
                ticket = self._tickets[seq]
                if ticket.slot is not None:
                    ticket.slot.set()
                ticket.settled.set()
            case ef.Refused(seq=seq, because=because, facts=facts):
                ticket = self._tickets[seq]
                ticket.fail(refusal(because, facts, ticket.demand.model.name))
            case ef.Lost(seq=seq, because=because, error=error):
                died = because in (None, Because.HUNG, Because.FAULT)
                lost = RunnerDiedError(error) if died else ForcedStopError(error)
                self._tickets[seq].fail(lost, taken=because is not None)
            case ef.Measure():
                self._wanted.set()

    async def _supervise(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.run()
        finally:
            # A record that stays belongs to a process that cannot be killed; it may still be asked to stop.
            if supervisor.gen not in self.fleet.runners:
                del self._supervisors[supervisor.gen]

    def _announce(self, ticket: Ticket, now: int) -> None:
        ticket.seq = seq = self.fleet.arrive(ticket.demand, now)
        self._tickets[seq] = ticket

    def _announce_all(self) -> None:
        """In the order in which they came; each is a step of its own."""
        while self._unannounced:
            ticket = self._unannounced.popleft()
            self.step(partial(self._announce, ticket))

    def _leave(self, ticket: Ticket) -> None:
        if ticket.seq:
            self._tickets.pop(ticket.seq, None)
            self.step(lambda now: self.fleet.leave(ticket.seq, now))
        else:
            self._unannounced.remove(ticket)

    def _release(self, ticket: Ticket, supervisor: Supervisor, pending: Sequence[OpenCall], *, served: bool) -> None:
        self._tickets.pop(ticket.seq, None)
        holds = self._holds_slot(ticket)
        self.step(lambda now: self.fleet.release(ticket.seq, now, settled=not pending, served=served))
        if pending and holds:
            supervisor.confirm(pending)

    def _holds_slot(self, ticket: Ticket) -> bool:
        runner = self.fleet.runners.get(ticket.gen or 0)
        lease = runner.leases.get(ticket.seq) if runner is not None else None
        return lease is not None and lease.holds_slot

    async def _acquire_slot(self, ticket: Ticket) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if ticket.error is not None:
            raise ticket.error
        if ticket.slot is not None or self._holds_slot(ticket):
            raise RuntimeError("a lease has one slot at a time")
        ticket.slot = granted = trio.Event()
        self.step(lambda now: self.fleet.want_slot(ticket.seq, now))
        try:
            await granted.wait()
        except BaseException:
            self.step(lambda now: self.fleet.return_slot(ticket.seq, now))
            raise
        finally:
            ticket.slot = None
        if ticket.error is not None:
            raise ticket.error

    def _return_slot(self, ticket: Ticket, supervisor: Supervisor, pending: Sequence[OpenCall]) -> None:
        holds = self._holds_slot(ticket)
        self.step(lambda now: self.fleet.return_slot(ticket.seq, now, settled=not pending))
        if pending and holds:
            supervisor.confirm(pending)

    # -- figures of the machine -----------------------------------------------------------------------------------

    async def measure(self) -> Sequence[DeviceFacts]:
        """Query the machine once and hand the figures to the fleet."""
        started = self._now()
        devices = await self._facts.query()
        self.step(lambda now: self.fleet.report(devices, started, now))
        self._announce_all()
        return devices

    async def processes(self, device: str) -> Mapping[int, int | None] | None:
        """Bytes by pid on a GPU, as its driver says; None if it does not."""
        return await self._facts.processes(device)

    async def _measure(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self.measure()

    def _figures_are_fresh(self) -> bool:
        self.fleet.now = self._now()
        return self.fleet.facts_fresh

    @staticmethod
    def _now() -> int:
        return round(trio.current_time() * 1e9)
