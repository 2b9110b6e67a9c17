"""A fleet in a chosen state, and its decisions as short lines: `Grant 2 ready`, `Drain X evicted_for 5`.

Sizes are GiB, durations seconds. Models have no keys and values to cache, so a runner holds exactly its size, and a
load needs size / 0.8 free bytes on a GPU. Runners are called by the name of their model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.config import wanted
from trio_ollama.scheduler.core.decisions import Abort, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from trio_ollama.scheduler.core.effects import Effect, Rearm
from trio_ollama.scheduler.core.fleet import Fleet
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.records import Lease, Runner, Waiter
from trio_ollama.scheduler.core.values import (
    MODELS,
    RAM,
    Demand,
    DeviceFacts,
    LoadOptions,
    ModelFacts,
    Placement,
    Policy,
)

__all__ = ["GIB", "MS", "FleetBuilder", "RecordingFleet", "S", "demand", "gib"]

GIB: Final = 1 << 30
S: Final = 10**9
MS: Final = 10**6


def gib(amount: float) -> int:
    """Whole bytes of a decimal number of GiB."""
    return int(Fraction(str(amount)) * GIB)


def demand(name: str, size: float, *, ctx: int | None = None, keep: int | None = None, **changes: Any) -> Demand:
    """A wish for model `name` of `size` GiB, with an automatic context unless it has a `ctx`.

    Other options go to `LoadOptions`.
    """
    slot = changes.pop("slot", True)
    facts = ModelFacts(name, name, f"/models/{name}", file_size=gib(size), architecture="llama", layers=32)
    options = LoadOptions(num_ctx_auto=ctx is None, **({"num_ctx": ctx} if ctx else {}) | changes)
    return Demand(facts, options, keep, slot)


class RecordingFleet(Fleet):
    """Keeps the decisions of each planner pass."""

    def __init__(self, policy: Policy) -> None:
        self.events: list[ev.Event] = []
        super().__init__(policy, self.events.append)
        self.passes: list[tuple[Decision, ...]] = []
        apply = self._planner.apply

        def recorded(decisions: Sequence[Decision]) -> None:
            self.passes.append(tuple(decisions))
            apply(decisions)

        self._planner.apply = recorded  # type: ignore[method-assign]


class FleetBuilder:
    """Devices, runners and waiters as a test wants them; then the fleet's own methods, on a clock of our own."""

    def __init__(self, gpus: Mapping[str, float] | float = 24, *, ram: float = 512, **policy: Any) -> None:
        self.fleet = RecordingFleet(Policy(**policy))
        self.now = 0
        totals = gpus if isinstance(gpus, Mapping) else {"g0": gpus}
        gpu_facts = [DeviceFacts(id_, gib(total), gib(total)) for id_, total in totals.items()]
        self.fleet.report([*gpu_facts, DeviceFacts(RAM, gib(ram), gib(ram), library="cpu")], 0, 0)
        self.fleet.passes.clear()
        self._next_lease = -1

    # -- the state to start from ----------------------------------------------------------------------------------

    def runner(
        self,
        name: str,
        size: float,
        *,
        on: str = "g0",
        leases: int = 0,
        state: State = State.READY,
        served: int = 1,
        keep: int = 300 * S,
        ctx: int | None = None,
    ) -> Runner:
        """A runner of `size` GiB on one GPU (or `cpu`), with leases of unnamed requests, each holding a slot first."""
        fleet = self.fleet
        wish = demand(name, size, ctx=ctx)
        fleet._loads.last_gen = gen = fleet._loads.last_gen + 1
        reservation = {on: gib(size), RAM: 0, MODELS: 1} if on != RAM else {RAM: gib(size), MODELS: 1}
        gpus = (on,) if on != RAM else ()
        placement = Placement("single" if gpus else "cpu", gpus, reservation, reservation, frozenset({on}))
        runner = Runner(
            gen, wish.model, wanted(wish, fleet.policy), placement, reservation, keep, state, began=self.now
        )
        runner.served, runner.pid, runner.context = served, 1000 + gen, runner.config.num_ctx
        for _ in range(leases):
            self.lease(runner)
        fleet.runners[gen] = runner
        self._see(gib(-size) if state is not State.LOADING else 0, on)
        if state is State.READY and not leases:
            runner.armed, runner.deadline = True, self.now + keep
        return runner

    def lease(self, runner: Runner) -> int:
        """One more request that `runner` serves already; their seqs are negative."""
        seq, self._next_lease = self._next_lease, self._next_lease - 1
        holds = runner.held_slots < runner.slots
        runner.held_slots += holds
        if not holds:
            runner.slot_queue.append(seq)
        runner.leases[seq] = Lease(seq, Demand(runner.model), wants_slot=True, holds_slot=holds)
        self.fleet._leases._gens[seq] = runner.gen
        return seq

    def _see(self, amount: int, on: str) -> None:
        """The driver's free figure of a device changes by `amount` bytes."""
        self.fleet._figures.devices = tuple(
            replace(device, reported_free=max(0, device.reported_free + amount)) if device.id == on else device
            for device in self.fleet.devices
        )

    def reported(self, free: float, on: str = "g0") -> None:
        """Set the driver's free figure of a device, in GiB."""
        self.fleet._figures.devices = tuple(
            replace(device, reported_free=gib(free)) if device.id == on else device for device in self.fleet.devices
        )

    def waits(self, seq: int, name: str, size: float, *, claim: Iterable[Runner] = (), **wish: Any) -> Waiter:
        """A request that was admitted earlier and still waits."""
        want = demand(name, size, **wish)
        queue = self.fleet._queue
        self.fleet.now, queue.last_seq = self.now, seq - 1
        waiter = queue.enter(want, self.fleet._loads.configuration(want))
        waiter.admitted = True
        queue.claim(waiter, frozenset(runner.gen for runner in claim))
        return waiter

    # -- what happens then ----------------------------------------------------------------------------------------

    def arrives(self, seq: int, name: str, size: float, **wish: Any) -> int:
        """A request comes, with the given seq."""
        assert seq > self.fleet._queue.last_seq, "seqs only grow"
        self.fleet._queue.last_seq = seq - 1
        return self.fleet.arrive(demand(name, size, **wish), self.now)

    def passes(self, duration: int) -> None:
        """Time goes by, in nanoseconds; the timers that are due fire."""
        self.now += duration
        for runner in list(self.fleet.runners.values()):
            if runner.deadline is not None and runner.deadline <= self.now:
                self.fleet.expire(runner.gen, self.now)

    def leaves(self, seq: int) -> None:
        """The client of a request goes, at whatever stage it is."""
        self.fleet.leave(seq, self.now)

    def releases(self, seq: int, *, settled: bool = True, served: bool = True) -> None:
        """A lease ends."""
        self.fleet.release(seq, self.now, settled=settled, served=served)

    def looks(self) -> None:
        """Fresh figures come in, nothing else: one event without a change of its own."""
        self.fleet.report(self.fleet.devices, self.now, self.now)
        self.fleet._replan()  # figures that are as before are no reason to

    def exits(self, runner: Runner, *, frees: bool = True) -> None:
        """The runner's process is reaped, and fresh figures come; unless it `frees`, its memory is not back yet."""
        self.fleet.exited(runner.gen, "it exited", now=self.now)
        if frees:
            self.recovers(runner)
        self.looks()

    def recovers(self, runner: Runner) -> None:
        """The memory of a runner that has exited is back, as the driver shows it."""
        for id_, amount in runner.reservation.items():
            self._see(amount, id_)
        self.looks()
        self.fleet.recovered(runner.gen, "memory back", self.now)

    def ready(self, name: str) -> Runner:
        """The load of model `name` succeeds; the driver shows it."""
        runner = self.of(name)
        if runner.state is State.SPAWNING:
            self.fleet.spawned(runner.gen, 1000 + runner.gen, self.now)
        for id_, amount in runner.reservation.items():
            self._see(-amount, id_)
        self.fleet.loaded(runner.gen, context=0, total_bytes=0, gpu_bytes=0, report=None, now=self.now)
        return runner

    def of(self, name: str) -> Runner:
        """The newest runner of a model."""
        return next(runner for runner in reversed(self.fleet.runners.values()) if runner.key == name)

    # -- what was decided -----------------------------------------------------------------------------------------

    def first_pass(self) -> list[str]:
        """The decisions of the first pass since the last look."""
        passes, self.fleet.passes = self.fleet.passes, []
        return [self._line(decision) for decision in passes[0]]

    def decided(self) -> list[str]:
        """All decisions since the last look, without the reasons for waiting."""
        passes, self.fleet.passes = self.fleet.passes, []
        return [self._line(decision) for one in passes for decision in one if not isinstance(decision, Wait)]

    def reasons(self) -> dict[int, str]:
        """What each waiter waits for now."""
        return {
            seq: waiter.wait.because.name.lower() if waiter.wait is not None else ""
            for seq, waiter in self.fleet.waiters.items()
        }

    def effects(self) -> list[Effect]:
        """What the shell is asked to do since the last look, without the setting of timers."""
        return [effect for effect in self.fleet.take_effects() if not isinstance(effect, Rearm)]

    def state(self, name: str) -> State:
        return self.of(name).state

    def _name(self, gen: int) -> str:
        return next(
            (runner.key for runner in self.fleet.runners.values() if runner.gen == gen),
            f"generation {gen}",
        )

    def _line(self, decision: Decision) -> str:
        match decision:
            case Grant(seq=seq, because=because, slot=slot):
                return f"Grant {seq} {because.name.lower()}" + ("" if slot else ", no slot")
            case StartLoad(seq=seq, placement=placement, because=because):
                return f"StartLoad {seq} {because.name.lower()} on {' '.join(placement.gpus) or RAM}"
            case Abort(gen=gen):
                return f"Abort {self._name(gen)}"
            case Drain(gen=gen, because=because, seq=seq):
                return f"Drain {self._name(gen)} {because.name.lower()} {seq}"
            case Claim(seq=seq, gens=gens):
                return f"Claim {seq} {{{', '.join(sorted(self._name(gen) for gen in gens))}}}"
            case Refuse(seq=seq, because=because):
                return f"Refuse {seq} {because.name.lower()}"
            case Wait(seq=seq, because=because):
                return f"Wait {seq} {because.name.lower()}"
