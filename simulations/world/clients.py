"""A simulated client: one request that arrives, perhaps leaves, uses its lease, and ends in exactly one way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import trio

from trio_ollama.scheduler import Demand, Lease, Scheduler

from .loop import sleep, sleep_until

__all__ = ["Client", "Outcome", "Script"]


class Outcome(StrEnum):
    ANSWERED = "answered"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a client does. Instants and durations in seconds."""

    demand: Demand
    arrives: float = 0.0
    leaves: float = math.inf
    """It disconnects at that moment, whatever is going on."""
    late: int = 0
    """It does so that many turns of the loop later than is possible: after some of what happens in that moment."""
    tokens: int = 5
    """It streams that many; 0: no generation."""
    inputs: int = 0
    """It embeds that many texts, with a slot for each."""
    pause: float = 0.0
    """It takes that long to read each token."""
    hold: float = 0.0
    """It keeps its lease for so long after all else."""
    holds: bool = False
    """It keeps its lease, after all else, until it is told to finish."""


class Client:
    """`await run(scheduler)` plays the script. Raises nothing but `Cancelled` of its surroundings."""

    def __init__(self, name: str, script: Script) -> None:
        self.name = name
        self.script = script
        self.scope = trio.CancelScope(deadline=math.inf if script.late else script.leaves)
        self.outcome: Outcome | None = None
        self.error: Exception | None = None
        self.lease: Lease | None = None
        self.generation: int | None = None
        self.got = 0
        """Tokens or vectors received."""
        self.granted_at: float | None = None
        self.ended_at: float | None = None
        self.granted = trio.Event()
        self.streaming = trio.Event()
        self.ended = trio.Event()
        self._finish: trio.Event | None = trio.Event() if script.holds else None

    async def leave_late(self) -> None:
        await sleep_until(self.script.leaves)
        for _ in range(self.script.late):
            await trio.lowlevel.checkpoint()
        self.leave()

    def leave(self) -> None:
        """The client disconnects now."""
        self.scope.cancel("the client left")

    def finish(self) -> None:
        """A client that holds its lease lets go of it."""
        if self._finish is not None:
            self._finish.set()

    async def run(self, scheduler: Scheduler) -> None:
        try:
            with self.scope:
                try:
                    await self._play(scheduler)
                    self.outcome = Outcome.ANSWERED
                except Exception as error:
                    self.outcome, self.error = Outcome.FAILED, error
            if self.scope.cancelled_caught:
                assert self.outcome is None, f"{self.name} ended twice"
                self.outcome = Outcome.CANCELLED
        finally:
            self.ended_at = trio.current_time()
            self.ended.set()

    async def _play(self, scheduler: Scheduler) -> None:
        script = self.script
        if script.arrives > trio.current_time():
            await sleep_until(script.arrives)
        self.lease = lease = await scheduler.acquire(script.demand)
        try:
            self.granted_at, self.generation = trio.current_time(), lease.generation
            self.granted.set()
            if script.tokens and script.demand.slot:
                await self._generate(lease)
            for _ in range(script.inputs):
                async with lease.slot():
                    self.streaming.set()
                    await lease.ask("/v1/embeddings", {"input": "text"})
                self.got += 1
            if script.hold:
                await sleep(script.hold)
            if self._finish is not None:
                await self._finish.wait()
        finally:
            lease.release()

    async def _generate(self, lease: Lease) -> None:
        async with lease.stream("/completion", {"prompt": "w", "n_predict": self.script.tokens}) as call:
            over = False
            while not over and (events := await call.receive()):
                self.streaming.set()
                over = events[-1].get("stop", False)
                self.got += sum([not event.get("stop", True) for event in events])
                if self.script.pause:
                    await sleep(self.script.pause)
