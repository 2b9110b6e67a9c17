"""What all parts of the control share: the map of runners with its lock, the four channels, and the world."""

from __future__ import annotations

from collections.abc import Callable

import trio

from trio_ollama.hardware.contract import Hardware
from trio_ollama.runners.contract import RunnerFactory
from trio_ollama.scheduler import Limits, Policy
from trio_ollama.scheduler.core.events import Event

from .channel import Channel
from .child import Child
from .context import Context
from .memory import Machine
from .mutex import Mutex
from .records import UNSIGNED, Asked, Loaded
from .runtime import Panic, Runtime
from .said import Said

__all__ = ["State"]


class State:
    def __init__(
        self,
        *,
        hardware: Hardware,
        runners: RunnerFactory,
        policy: Policy,
        limits: Limits,
        on_event: Callable[[Event], None],
        keeps_figures: bool,
    ) -> None:
        self.policy = policy
        self.limits = limits
        self.factory = runners
        self.machine = Machine(hardware, keeps=keeps_figures)
        self._on_event = on_event
        self.changed: object = None
        """Another one after every change that can be seen from outside."""
        self.broken: list[str] = []
        """What has been wrong at some moment."""
        self.runtime = Runtime(self.say)
        self.ended = Context()
        """The scheduler's own context."""
        bound = policy.queue_bound
        self.pending: Channel[Asked] = Channel(bound)
        self.finished: Channel[Asked] = Channel(bound)
        self.expired: Channel[Loaded] = Channel(bound)
        self.unloaded: Channel[None] = Channel(bound)
        self.map_lock = Mutex()
        """Guards the next two, most of the time."""
        self.loaded: dict[str, Loaded] = {}
        self.active: Child | None = None
        """The one that is being loaded."""

    def say(self, what: str, model: str = "") -> None:
        self.changed = object()
        self._on_event(Said(round(trio.current_time() * 1e9), model, what))

    def count(self, runner: Loaded, change: int) -> None:
        """Unsigned, as in Go: below zero is the largest number."""
        self.changed = object()
        runner.count += change
        if runner.count < 0:
            runner.count &= UNSIGNED
            self.broken.append(f"I03: the count of {runner.who} is {runner.count}")
            self.say(self.broken[-1], runner.key)

    def hand_over(self, asked: Asked, runner: Loaded) -> None:
        """Note what is handed out. Call it at the moment of the grant."""
        self.say(f"{runner.who} goes to {asked.who}, {runner.count} use it", asked.key)
        if runner.child is None or runner.child.dead:
            self.broken.append(f"I02: {asked.who} got the dead {runner.who}")

    def active_child(self) -> Child:
        """Whoever calls the active load's method when there is none has a nil pointer. Raises `Panic`."""
        if self.active is None:
            raise Panic("nil pointer: the load that was active has been taken away")
        return self.active
