"""What a picture of a run needs: the states of each runner, the stages of each request, and what struck them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.stages import Stage, stage

from .playback import EVICTIONS, Playback
from .world import Process, Request

__all__ = ["History", "Mark", "RequestLife", "RunnerLife"]

What = TypeVar("What", State, Stage)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a runner at an instant: load, evict, crash or failed load."""

    at: int
    kind: str
    gen: int
    text: str


@dataclass(slots=True)
class RunnerLife:
    """One generation. `states`: (since, state), in order; `ended` is None if it is still there at the end."""

    gen: int
    model: str
    kind: str
    reservation: dict[str, int]
    states: list[tuple[int, State]] = field(default_factory=list)
    ended: int | None = None


@dataclass(slots=True)
class RequestLife:
    """`stages`: (since, stage), in order. `gen`: the last runner that it had a lease on."""

    number: int
    request: Request
    stages: list[tuple[int, Stage]]
    gen: int | None = None


class History(Playback):
    """A playback that looks at the fleet after every step. Times in nanoseconds, reservations in bytes by device."""

    def __init__(self, seed: int, *, until: float | None = None) -> None:
        super().__init__(seed, until=until)
        self.lives: dict[int, RunnerLife] = {}
        self.request_lives: list[RequestLife] = []
        self.marks: list[Mark] = []
        self._there: set[int] = set()
        """Generations with a record."""

    def step(self, change: Callable[[], object]) -> None:
        super().step(change)
        self._look_at_runners()
        self._look_at_requests()

    def _look_at_runners(self) -> None:
        runners = self.fleet.runners
        for gen, runner in runners.items():
            if gen not in self.lives:
                kept = {id_: amount for id_, amount in runner.reservation.items() if id_ in self.driver.sizes}
                self.lives[gen] = RunnerLife(gen, runner.model.name, runner.placement.kind, kept)
            _note(self.lives[gen].states, self.now, runner.state)
        for gen in self._there - set(runners):
            self.lives[gen].ended = self.now
        self._there = set(runners)

    def _look_at_requests(self) -> None:
        for request in self.requests[len(self.request_lives) :]:
            first = (request.arrival.at, Stage.QUEUED)
            self.request_lives.append(RequestLife(len(self.request_lives) + 1, request, [first]))
        for life in self.request_lives:
            request = life.request
            if request.outcome is None:
                life.gen = request.gen
                _note(life.stages, self.now, self._stage(request))

    def _stage(self, request: Request) -> Stage:
        waiter = self.fleet.waiters.get(request.seq)
        if waiter is not None:
            return stage(waiter)
        if request.gen is None:
            return Stage.QUEUED
        runner = self.fleet.runners[request.gen]
        return Stage.WAITING_FOR_SLOT if request.seq in runner.slot_queue else Stage.RUNNING

    def _happened(self, event: ev.Event) -> None:
        super()._happened(event)
        match event:
            case ev.LoadStarted(gen=gen):
                self.marks.append(Mark(event.at, "load", gen, event.text()))
            case ev.LoadFailed(gen=gen):
                self.marks.append(Mark(event.at, "failed load", gen, event.text()))
            case ev.DrainStarted(gen=gen, because=because) if because in EVICTIONS:
                self.marks.append(Mark(event.at, "evict", gen, event.text()))

    def _exit(self, process: Process, *, out_of_memory: bool = False) -> None:
        if process.alive and not process.asked_to_stop:
            why = "out of memory" if out_of_memory else "its process exited by itself"
            self.marks.append(Mark(self.now, "crash", process.gen, f"{process.key} (generation {process.gen}): {why}"))
        super()._exit(process, out_of_memory=out_of_memory)


def _note(spans: list[tuple[int, What]], now: int, what: What) -> None:
    """`what` holds from now on; what held for no time at all is forgotten."""
    if spans and spans[-1][0] == now:
        spans.pop()
    if not spans or spans[-1][1] is not what:
        spans.append((now, what))
