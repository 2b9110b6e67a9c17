"""What a picture needs of a run, on any scheduler: seen from outside, and from inside where it is ours.

history = History()
run = spot.play(interfere=history.begin, instruments=[history])
draw("...", [history.story(run, heading="ours", problems=run.broken)])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import trio
import trio.abc

from simulations.picture.story import Course, End, Holding, Kind, Mark, Phase, RequestLane, RunnerLane, Stage, Story
from simulations.world import World
from simulations.world.clients import Client, Outcome
from simulations.world.runners import SimulatedRunner
from trio_ollama.runners.contract import looks_like_out_of_memory
from trio_ollama.scheduler import Scheduler
from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.records import Runner
from trio_ollama.scheduler.core.stages import Stage as Told
from trio_ollama.scheduler.core.stages import stage

from .captions import faults, healing, remark
from .play import patience
from .run import Run

__all__ = ["History"]

EVICTIONS = (Because.EVICTED_FOR, Because.RELOAD_FOR)
AFTERMATH = 3.0
"""Seconds: what runners do so soon after the last request still belongs to it; what comes later is keep-alive."""
PHASES = {
    State.SPAWNING: Phase.LOADING,
    State.LOADING: Phase.LOADING,
    State.READY: Phase.READY,
    State.DRAINING: Phase.DRAINING,
    State.STOPPING: Phase.STOPPING,
    State.RECOVERING: Phase.RETURNING,
    State.GONE: None,
}
STAGES = {
    Told.QUEUED: Stage.QUEUED,
    Told.WAITING_FOR_DRAIN: Stage.EVICTING,
    Told.WAITING_FOR_LOAD: Stage.LOADING,
    Told.WAITING_FOR_SLOT: Stage.SLOT,
}
SAID = {" marks ": Kind.EVICT, " failed: ": Kind.FAILED_LOAD}
"""What stands in the words of a scheduler that is not ours."""
ENDS = {Outcome.ANSWERED: End.ANSWERED, Outcome.CANCELLED: End.CANCELLED, Outcome.FAILED: End.FAILED}


class History(trio.abc.Instrument):
    """Looks at the world after every step of a task."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._stages: dict[str, Course[Stage]] = {}
        self._holdings: dict[int, list[Holding]] = {}
        """By pid."""
        self._others: dict[str, Holding] = {}
        self._reserved: dict[str, Course[int]] = {}
        self._phases: dict[int, Course[Phase]] = {}
        self._models: dict[int, str] = {}
        """By generation, as the next one."""
        self._pids: dict[int, int] = {}

    def begin(self, world: World) -> None:
        self._world = world

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        world = self._world
        if world is None:
            return
        now = trio.current_time()
        for process in world.factory.spawned:
            self._look_at_bytes(process, now)
        for device, held in world.hardware._foreign.items():
            found = self._others.setdefault(device, Holding("other programs", "", device))
            found.amount.note(now, held or None)
        ours = _ours(world)
        if ours is not None:
            self._look_inside(ours, now)
        for client in world.clients:
            course = self._stages.setdefault(client.name, Course())
            if client.ended.is_set():
                course.note(now, None)
            elif client.script.arrives <= now:
                course.note(now, self._stage(world, client))

    def _look_at_bytes(self, process: SimulatedRunner, now: float) -> None:
        name = f"{process.spec.model}, process {process.pid}"
        holdings = self._holdings.get(process.pid)
        if holdings is None:
            holdings = [Holding(name, process.spec.model, device) for device in process.footprint]
            self._holdings[process.pid] = holdings
        for held in holdings:
            held.amount.note(now, process.footprint[held.device] if process._allocated else None)

    def _look_inside(self, scheduler: Scheduler, now: float) -> None:
        runners = scheduler.fleet.runners
        for gen, runner in runners.items():
            self._models[gen] = runner.model.name
            self._phases.setdefault(gen, Course()).note(now, _phase(runner))
            if runner.pid is not None:
                self._pids[gen] = runner.pid
        for gen in self._phases.keys() - runners.keys():
            self._phases[gen].note(now, None)
        for device in scheduler.fleet.devices:
            taken = sum(runner.holds(device.id) for runner in runners.values())
            self._reserved.setdefault(device.id, Course()).note(now, taken)

    def _stage(self, world: World, client: Client) -> Stage:
        script = client.script
        ours = _ours(world)
        if client.lease is not None and client.generation is not None:
            if script.tokens and script.demand.slot and not client.streaming.is_set():
                return Stage.PROMPT
            waits = ours is not None and any(
                runner.leases[seq].demand.options is script.demand.options
                for runner in ours.fleet.runners.values()
                for seq in runner.slot_queue
            )
            return Stage.SLOT if waits else Stage.RUNNING
        if ours is not None:
            return _stage_inside(ours, client)
        model = script.demand.model.name
        loading = (_loads(process) for process in world.factory.alive if process.spec.model == model)
        return Stage.LOADING if any(loading) else Stage.QUEUED

    # -- afterwards -----------------------------------------------------------------------------------------------

    def story(self, run: Run, *, heading: str, problems: Sequence[str]) -> Story:
        """`problems`: what is wrong with the run, in words."""
        world = self._world
        assert world is not None, "the run has not begun"
        given_up = run.scenario.last + patience(run.scenario)
        requests = [self._request(client, given_up) for client in run.clients]
        runners = self._runners_inside(run) if self._phases else _from_outside(run)
        story = Story(
            heading=heading,
            remark=remark(requests, problems),
            broken=bool(problems),
            devices=world.hardware._totals,
            until=0.0,
            holdings=[*(held for holdings in self._holdings.values() for held in holdings), *self._others.values()],
            reserved=self._reserved,
            runners=runners,
            requests=requests,
            faults=list(faults(run.scenario)),
        )
        last = max((request.ended for request in requests if request.end is not End.NEVER), default=0.0)
        last = max([last, *(mark.at for mark in story.faults)])
        never = any(request.end is End.NEVER for request in requests)
        horizon = given_up if never else last + AFTERMATH
        last = max((at for at in story.instants() if at < horizon), default=last)
        story.until = last + min(1.0, 0.02 * last + 0.05)
        if story.faults:
            story.faults.append(healing(run.scenario))
        return story

    def _request(self, client: Client, given_up: float) -> RequestLane:
        lane = RequestLane(client.name, client.script.demand.model.name, client.script.arrives)
        lane.stages = self._stages.get(client.name, lane.stages)
        if client.ended_at is not None and client.outcome is not None and client.ended_at <= given_up:
            lane.end, lane.ended = ENDS[client.outcome], client.ended_at
            lane.arrived = min(lane.arrived, lane.ended)
            lane.text = str(client.error or "")
        return lane

    def _runners_inside(self, run: Run) -> list[RunnerLane]:
        lanes = {
            gen: RunnerLane(f"{self._models[gen]} #{gen}", self._models[gen], phases)
            for gen, phases in self._phases.items()
        }
        for event in run.events:
            at = event.at / 1e9
            match event:
                case ev.LoadStarted(gen=gen) if gen in lanes:
                    lanes[gen].marks.append(Mark(at, Kind.LOAD, event.text()))
                case ev.LoadFailed(gen=gen, error=error) if gen in lanes:
                    kind = Kind.OUT_OF_MEMORY if looks_like_out_of_memory(error) else Kind.FAILED_LOAD
                    lanes[gen].marks.append(Mark(at, kind, event.text()))
                case ev.RetryPlanned(model=model):
                    newest = [lane for lane in lanes.values() if lane.model == model and lane.phases.changes[0][0] < at]
                    if newest:
                        newest[-1].marks.append(Mark(at, Kind.OUT_OF_MEMORY, event.text()))
                case ev.DrainStarted(gen=gen, because=because) if gen in lanes:
                    lanes[gen].text = because
                    if because in EVICTIONS:
                        lanes[gen].marks.append(Mark(at, Kind.EVICT, event.text()))
        processes = {process.pid: process for process in run.processes}
        for gen, pid in self._pids.items():
            lanes[gen].marks += _crash(processes[pid])
        return list(lanes.values())


def _ours(world: World) -> Scheduler | None:
    scheduler: object = world.scheduler
    return scheduler if isinstance(scheduler, Scheduler) else None


def _phase(runner: Runner) -> Phase | None:
    if runner.state is State.READY and runner.claimed_by is not None:
        return Phase.CLAIMED
    return PHASES[runner.state]


def _stage_inside(scheduler: Scheduler, client: Client) -> Stage:
    """Of a client without a lease."""
    demand = client.script.demand
    for seq, ticket in scheduler._tickets.items():
        if ticket.demand.options is demand.options:
            waiter = scheduler.fleet.waiters.get(seq)
            if waiter is not None:
                return STAGES[stage(waiter)]
            runner = scheduler.fleet.runners.get(ticket.gen or 0)
            if runner is not None and seq in runner.slot_queue:
                return Stage.SLOT
    return Stage.QUEUED


def _loads(process: SimulatedRunner) -> bool:
    return process.loaded_at is None and not process.signals


def _from_outside(run: Run) -> list[RunnerLane]:
    """As far as processes can be seen, and with what the scheduler says about evictions and loads that fail."""
    lanes = [_process(process) for process in run.processes]
    for event in run.events:
        at, text = event.at / 1e9, event.text()
        alive = [lane for lane in lanes if lane.model == event.model and lane.phases.at(at) is not None]
        kind = next((kind for words, kind in SAID.items() if words in text), None)
        if alive and kind is not None:
            alive[-1].marks.append(Mark(at, kind, text))
    return lanes


def _process(process: SimulatedRunner) -> RunnerLane:
    model = process.spec.model
    lane = RunnerLane(f"{model}, pid {process.pid}", model)
    lane.marks.append(Mark(process.started_at, Kind.LOAD, f"process {process.pid} starts"))
    lane.marks += _crash(process)
    changes = [(process.started_at, Phase.LOADING), (process.loaded_at, Phase.READY)]
    changes += [(at, Phase.STOPPING) for at, _ in process.signals[:1]]
    for at, phase in changes:
        if at is not None:
            lane.phases.note(at, phase)
    if process.ended_at is not None:
        lane.phases.note(process.ended_at, None)
    lane.text = ", ".join(f"SIG{name} at {at:.2f} s" for at, name in process.signals)
    return lane


def _crash(process: SimulatedRunner) -> Iterator[Mark]:
    """It ended although nobody had asked it to."""
    if process.exited is not None and process.ended_at is not None and not process.signals:
        text = process.exited.describe()
        kind = Kind.OUT_OF_MEMORY if looks_like_out_of_memory(text) else Kind.CRASH
        yield Mark(process.ended_at, kind, f"process {process.pid} ends by itself: {text}")
