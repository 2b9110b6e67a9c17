"""A discrete-event world around the pure fleet: no tasks, no threads, one heap of events, everything from one seed.

It stands in for the scheduler's shell: it performs the fleet's effects on simulated processes and drivers, and hands
every change of the fleet to the checks (`invariants`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from trio_ollama.scheduler.core import effects as ef
from trio_ollama.scheduler.core import lifecycle
from trio_ollama.scheduler.core.decisions import Because, Decision
from trio_ollama.scheduler.core.events import Event
from trio_ollama.scheduler.core.fleet import Fleet
from trio_ollama.scheduler.core.lifecycle import ALIVE
from trio_ollama.scheduler.core.records import Runner
from trio_ollama.scheduler.core.values import MODELS, RAM, DeviceFacts, Policy

from .decisions import Violation
from .driver import Driver
from .invariants import Checks
from .trace import line
from .workloads import MS, Arrival, S, Workload, workload

__all__ = ["Process", "Request", "World", "run"]

ARRIVALS, OTHERS, TIMERS = range(3)
"""At one instant requests come first and keep-alive ends last (R21)."""

QUERY = 20 * MS
"""How long the driver takes to answer."""
RECOVERY_LIMIT = 5 * S
STUCK_AFTER = 7 * S


@dataclass(slots=True, eq=False)
class Request:
    """A client's request. `outcome` is set once (I09)."""

    arrival: Arrival
    seq: int = 0
    gen: int | None = None
    slot: bool = False
    outcome: str | None = None
    ended_at: int = 0
    calls: int = 0
    """How often it got a slot."""
    live_at_arrival: int = 0


@dataclass(slots=True, eq=False)
class Process:
    """A runner's child. `used`: bytes it holds by device, from its start until its memory is back."""

    gen: int
    key: str
    alive: bool = False
    asked_to_stop: bool = False
    loaded: bool = False
    stuck: bool = False
    exited_at: int | None = None
    used: dict[str, int] = field(default_factory=dict)


class WatchedFleet(Fleet):
    """Shows each decision to the checks before it is applied, and counts which rows of the lifecycle table are used."""

    def __init__(self, policy: Policy, watch: Callable[[Decision], None], on_event: Callable[[Event], None]) -> None:
        super().__init__(policy, on_event)
        self.reached: Counter[tuple[lifecycle.State, lifecycle.Event]] = Counter()
        apply, advance = self._planner.apply, self._generations.advance

        def watched(decisions: Sequence[Decision]) -> None:
            for decision in decisions:
                watch(decision)
                apply((decision,))

        def counted(runner: Runner, event: lifecycle.Event, *arguments: Any, **more: Any) -> None:
            self.reached[runner.state, event] += 1
            advance(runner, event, *arguments, **more)

        self._planner.apply = watched  # type: ignore[method-assign]
        self._generations.advance = counted  # type: ignore[method-assign]


class World:
    def __init__(self, work: Workload, seed: int, *, trace: Callable[[str], None] | None = None) -> None:
        self.work = work
        self.now = 0
        self.fleet = WatchedFleet(work.policy, self._decided, self._happened)
        self.checks = Checks(self)
        self.requests: list[Request] = []
        self.by_seq: dict[int, Request] = {}
        self.processes: dict[int, Process] = {}
        self.killed: set[int] = set()
        self.stats: Counter[str] = Counter()
        self._trace = trace
        self._random = {name: Random(f"{name} {seed}") for name in ("process", "driver", "slot")}
        self._heap: list[tuple[int, int, int, Callable[[], None]]] = []
        self._number = 0
        self._unannounced: list[Request] = []
        self._query_runs = False
        self.driver = Driver(work)

    # -- the clock ------------------------------------------------------------------------------------------------

    def at(self, when: int, what: Callable[[], None], rank: int = OTHERS) -> None:
        self._number += 1
        heapq.heappush(self._heap, (when, rank, self._number, what))

    def after(self, delay: int, what: Callable[[], None]) -> None:
        self.at(self.now + delay, what)

    def run(self) -> None:
        """Until nothing is left to happen; raises `Violation`."""
        work = self.work
        self.step(lambda: self.fleet.report(self.driver.figures(0), 0, 0))
        for arrival in work.arrivals:
            self.at(arrival.at, lambda arrival=arrival: self._arrive(arrival), ARRIVALS)  # type: ignore[misc]
        for when, key in work.stops:
            self.at(when, lambda key=key: self.step(lambda: self.fleet.stop(key, Because.STOPPED, self.now)))  # type: ignore[misc]
        for when, gpu, held in work.foreign:
            self.at(when, lambda gpu=gpu, held=held: self.driver.others_hold(gpu, held))  # type: ignore[misc]
        for when in work.faults.runtime_oom:
            self.at(when, lambda: self.step(lambda: self.fleet.runtime_out_of_memory(self.now)))
        if work.close_at is not None:
            self.at(work.close_at, lambda: self.step(lambda: self.fleet.close(self.now)))
        while self._heap:
            self.now, _, _, what = heapq.heappop(self._heap)
            what()
        self.checks.at_the_end()

    def step(self, change: Callable[[], object]) -> None:
        """One synchronous change of the fleet, its effects, and the checks."""
        self.checks.before_step()
        change()
        effects = self.fleet.take_effects()
        for effect in effects:
            self.checks.before_effect(effect)
            self._perform(effect)
        self.checks.after_step()

    # -- clients --------------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        request = Request(arrival)
        request.live_at_arrival = sum(other.outcome is None for other in self.requests) + 1
        self.requests.append(request)
        if arrival.patience is not None:
            self.after(arrival.patience, lambda: self.leave(request))
        self.fleet.now = self.now
        if self.fleet.can_grant(arrival.demand) or self.fleet.facts_fresh:
            self._announce(request)
        else:
            self._unannounced.append(request)
            self._query()

    def _announce(self, request: Request) -> None:
        def arrive() -> None:
            request.seq = self.fleet.arrive(request.arrival.demand, self.now)
            self.by_seq[request.seq] = request

        self.step(arrive)
        self.checks.arrived(request)

    def leave(self, request: Request) -> None:
        """Its client goes, whatever stage it is in; the child may take a while to notice (R08)."""
        if request.outcome is not None:
            return
        self._end(request, "cancelled")
        if not request.seq:
            self._unannounced.remove(request)
            return
        late = request.slot and self._random["slot"].random() < self.work.faults.late_slot
        if request.gen is not None and late:
            gen = request.gen
            self.step(lambda: self.fleet.release(request.seq, self.now, settled=False))
            self.after(self._random["slot"].randint(0, S), lambda: self._settle_slot(gen))
        else:
            self.step(lambda: self.fleet.leave(request.seq, self.now))
        self.checks.holds_nothing(request)

    def _settle_slot(self, gen: int) -> None:
        runner = self.fleet.runners.get(gen)
        if runner is not None and runner.state in ALIVE:
            self.step(lambda: self.fleet.slot_settled(gen, self.now))

    def _work(self, request: Request) -> None:
        """It has a slot: the child works for it."""
        request.slot = True
        request.calls += 1
        self.after(request.arrival.generation, lambda calls=request.calls: self._answered(request, calls))  # type: ignore[misc]

    def _answered(self, request: Request, calls: int) -> None:
        if request.outcome is not None or request.calls != calls:
            return
        request.slot = False
        if calls < request.arrival.inputs:
            self.step(lambda: self.fleet.return_slot(request.seq, self.now))
            self.step(lambda: self.fleet.want_slot(request.seq, self.now))
            return
        self._end(request, "done")
        self.step(lambda: self.fleet.release(request.seq, self.now, served=True))

    def _end(self, request: Request, outcome: str) -> None:
        if request.outcome is not None:
            raise Violation("I09", f"request {request.seq} ends twice: {request.outcome}, then {outcome}")
        request.outcome, request.ended_at = outcome, self.now
        self.stats[outcome] += 1
        self.checks.ended(request)

    # -- effects --------------------------------------------------------------------------------------------------

    def _perform(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Spawn(gen=gen):
                self.processes[gen] = Process(gen, self.fleet.runners[gen].key)
                self.after(self._random["process"].choice((0, 0, 5 * MS)), lambda: self._spawn(gen))
            case ef.Stop(gen=gen):
                self._stop(self.processes[gen])
            case ef.Rearm(gen=gen):
                deadline = self.fleet.runners[gen].deadline
                if deadline is not None:
                    # Timers of earlier idle periods are left to fire.
                    self.at(deadline, lambda: self.step(lambda: self.fleet.expire(gen, self.now)), TIMERS)
            case ef.Granted(seq=seq, gen=gen):
                request = self.by_seq[seq]
                request.gen = gen
                if not request.arrival.demand.slot:
                    if request.arrival.inputs:
                        self.after(0, lambda: self._want_slot(request))
                    else:
                        self.after(0, lambda: self._answered(request, 0))
            case ef.SlotGranted(seq=seq):
                self._work(self.by_seq[seq])
            case ef.Refused(seq=seq, because=because):
                self._end(self.by_seq[seq], f"refused: {because.name.lower()}")
            case ef.Lost(seq=seq):
                self._end(self.by_seq[seq], "lost")
            case ef.Measure():
                self._query()

    def _want_slot(self, request: Request) -> None:
        if request.outcome is None:
            self.step(lambda: self.fleet.want_slot(request.seq, self.now))

    # -- processes ------------------------------------------------------------------------------------------------

    def _spawn(self, gen: int) -> None:
        process, runner, faults = self.processes[gen], self.fleet.runners[gen], self.work.faults
        random = self._random["process"]
        if process.asked_to_stop or random.random() < faults.spawn_error:
            self.step(lambda: self.fleet.spawn_failed(gen, "it could not be started", self.now))
            return
        process.alive = True
        self.checks.spawned(process)
        self.step(lambda: self.fleet.spawned(gen, 1000 + gen, self.now))
        part = random.randint(70, 100)
        for id_, amount in runner.reservation.items():
            if id_ != MODELS:
                process.used[id_] = amount * part // 100
                self.driver.use(id_, process.used[id_], self.now)
        takes = random.randint(*self.work.load)
        draw = random.random()
        if draw < faults.out_of_memory:
            self.after(takes, lambda: self._load_fails(process, out_of_memory=True))
        elif draw < faults.out_of_memory + faults.load_error:
            self.after(takes, lambda: self._load_fails(process, out_of_memory=False))
        else:
            self.after(takes, lambda: self._loaded(process))
        if random.random() < faults.crash:
            self.after(random.randint(0, 20 * S), lambda: self._exit(process))
        if random.random() < faults.hang:
            self.after(random.randint(0, 20 * S), lambda: self.kill(process))

    def _loaded(self, process: Process) -> None:
        if process.alive and not process.asked_to_stop:
            process.loaded = True
            on_gpus = sum(amount for id_, amount in process.used.items() if id_ != RAM)
            total = sum(process.used.values())
            self.step(
                lambda: self.fleet.loaded(
                    process.gen, context=0, total_bytes=total, gpu_bytes=on_gpus, report=None, now=self.now
                )
            )

    def _load_fails(self, process: Process, *, out_of_memory: bool) -> None:
        if process.alive and not process.asked_to_stop:
            self.stats["load failures"] += 1
            if self._random["process"].random() < 0.5:
                self._exit(process, out_of_memory=out_of_memory)
            else:
                self.step(lambda: self.fleet.load_failed(process.gen, "no", out_of_memory=out_of_memory, now=self.now))

    def kill(self, process: Process) -> None:
        """The watchdog says it hangs."""
        if process.alive and self.fleet.runners[process.gen].state in ALIVE:
            self.killed.add(process.gen)
            self.step(lambda: self.fleet.kill(process.gen, Because.HUNG, "it hangs", self.now))

    def _stop(self, process: Process) -> None:
        if process.asked_to_stop:
            return
        process.asked_to_stop = True
        if not process.alive:
            return  # it is not started at all
        if self._random["process"].random() < self.work.faults.stuck:
            self.after(STUCK_AFTER, lambda: self._cannot_die(process))
        else:
            self.after(self._random["process"].randint(0, self.work.exit), lambda: self._exit(process))

    def _cannot_die(self, process: Process) -> None:
        if process.alive:
            process.stuck = True
            self.stats["stuck"] += 1
            self.step(lambda: self.fleet.stuck(process.gen, self.now))
            if self._random["process"].random() < 0.5:
                self.after(self._random["process"].randint(0, 60 * S), lambda: self._exit(process))

    def _exit(self, process: Process, *, out_of_memory: bool = False) -> None:
        if not process.alive:
            return
        process.alive = False
        process.exited_at = self.now
        gen, asked = process.gen, process.asked_to_stop
        self.step(lambda: self.fleet.exited(gen, "it exited", out_of_memory=out_of_memory, now=self.now))
        back = self._random["driver"].randint(0, self.work.recovery)
        self.after(back, lambda: self._give_back(process))
        seen = back + self.work.lag + QUERY
        if not asked:
            # Nobody looked before it went: there is nothing to compare with, so nobody waits (R34).
            self.after(0, lambda: self._recovered(gen))
        else:
            self.after(min(seen, RECOVERY_LIMIT), lambda: self._recovered(gen, measured=True))

    def _recovered(self, gen: int, *, measured: bool = False) -> None:
        if measured:
            self.step(lambda: self.fleet.report(self.driver.figures(self.now), self.now, self.now))
        self.step(lambda: self.fleet.recovered(gen, "memory back", self.now))

    # -- memory ---------------------------------------------------------------------------------------------------

    def _give_back(self, process: Process) -> None:
        for id_, amount in process.used.items():
            self.driver.use(id_, -amount, self.now)
        process.used.clear()

    def _query(self) -> None:
        if not self._query_runs:
            self._query_runs = True
            started, figures = self.now, self.driver.figures(self.now)
            self.after(QUERY, lambda: self._answer(figures, started))

    def _answer(self, figures: list[DeviceFacts], started: int) -> None:
        self._query_runs = False
        self.step(lambda: self.fleet.report(figures, started, self.now))
        unannounced, self._unannounced = self._unannounced, []
        for request in unannounced:
            self._announce(request)

    # -- the record -----------------------------------------------------------------------------------------------

    def _decided(self, decision: Decision) -> None:
        self.stats[type(decision).__name__] += 1
        if self._trace is not None:
            self._trace(f"{self.now / S:10.3f}   {line(decision)}")
        self.checks.before_decision(decision)

    def _happened(self, event: Event) -> None:
        if self._trace is not None:
            self._trace(f"{self.now / S:10.3f} {event.text()}")
        self.checks.happened(event)


def run(seed: int, *, trace: Callable[[str], None] | None = None) -> World:
    """The world of a seed, run to its end. Raises `Violation`, with the way to replay it."""
    world = World(workload(seed), seed, trace=trace)
    try:
        world.run()
    except Exception as error:
        error.add_note(
            f"seed {seed} ({world.work.kind}) at {world.now / S:.3f} s; again with:\n"
            f"    python -m simulations.fleet replay {seed} --verbose"
        )
        raise
    return world
