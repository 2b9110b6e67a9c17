"""Whether the planner may decide what it decides: checked before each decision is applied.

Nothing here asks the planner: compatibility, pools and places are worked out a second time, in plainer ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from simulations.yardsticks import ORDER
from trio_ollama.scheduler.core.decisions import Abort, Because, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.placements import placements
from trio_ollama.scheduler.core.records import Runner, Waiter
from trio_ollama.scheduler.core.values import MODELS, LaunchConfig, Placement

if TYPE_CHECKING:
    from .world import World

__all__ = ["DecisionChecks", "Violation", "compatible"]


class Violation(AssertionError):
    """A rule is broken; `rule` is its name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def compatible(has: LaunchConfig, wants: LaunchConfig) -> bool:
    """Whether a runner serves a wish, for the options that our workloads vary (R58, R59)."""
    if wants.num_gpu >= 0 and has.num_gpu != wants.num_gpu:
        return False
    if wants.num_ctx_auto:
        return has.num_ctx_auto or has.num_ctx >= wants.num_ctx
    return has.num_ctx == wants.num_ctx


class DecisionChecks:
    def __init__(self, world: World) -> None:
        self.world = world
        self.starters: set[int] = set()
        """Requests that a load was started for."""
        self.first_reason: dict[int, Because] = {}
        """Why each request waited at first."""
        self.loads_started = False
        """In this step."""
        self._overtaken: dict[int, int] = {}
        self._claims_before: dict[int, frozenset[int]] = {}
        """Claims as they were before the step."""
        self._waiting_before: set[int] = set()
        self._on_old_figures: set[tuple[int, int]] = set()
        """Claims whose runner may not be stopped before there are fresh figures."""

    def before_step(self) -> None:
        waiters = self.world.fleet.waiters
        self._claims_before = {seq: waiter.claim for seq, waiter in waiters.items() if waiter.claim}
        self._waiting_before = set(waiters)
        self.loads_started = False

    def after_step(self) -> None:
        if self.world.fleet.facts_fresh:
            self._on_old_figures.clear()

    def before_decision(self, decision: Decision) -> None:
        match decision:
            case Grant():
                self._grant(decision)
            case StartLoad():
                self._start(decision)
            case Refuse():
                self._refuse(decision)
            case Claim():
                self._claim(decision)
            case Wait(seq=seq, because=because):
                self.first_reason.setdefault(seq, because)
            case Drain(gen=gen, because=because, seq=seq):
                runner, waiter = self._runner(gen), self.world.fleet.waiters[seq]
                if (seq, gen) in self._on_old_figures and not self.world.fleet.facts_fresh:
                    raise Violation("R35", f"generation {gen} is stopped for figures from before the last exit")
                if runner.leases:
                    raise Violation("I04", f"generation {gen} is drained for {seq} under its leases")
                if because is Because.RELOAD_FOR and compatible(runner.config, waiter.wanted):
                    raise Violation("I26", f"generation {gen} is reloaded for {seq}, which it serves as it is")
                if not runner.served and not self.world.work.policy.finish_abandoned_load:
                    raise Violation("R44", f"generation {gen} goes without having served anybody")
            case Abort(gen=gen):
                runner = self._runner(gen)
                for seq, waiter in self.world.fleet.waiters.items():
                    mine = waiter.key == runner.key and compatible(runner.config, waiter.wanted)
                    if mine and (runner.closed_after is None or seq <= runner.closed_after):
                        raise Violation("R04", f"generation {gen} is aborted although {seq} waits for it")

    def _grant(self, grant: Grant) -> None:
        fleet = self.world.fleet
        runner, waiter = self._runner(grant.gen), fleet.waiters[grant.seq]
        process = self.world.processes[grant.gen]
        if runner.state is not State.READY or not process.alive or process.exited_at is not None:
            raise Violation("I02", f"request {grant.seq} gets generation {grant.gen}, which is {runner.state}")
        if runner.key != waiter.key or not compatible(runner.config, waiter.wanted):
            raise Violation("I02", f"request {grant.seq} gets generation {grant.gen} with the wrong options")
        if not runner.open_to(grant.seq):
            raise Violation("R26", f"request {grant.seq} came after generation {grant.gen} was stopped")
        if runner.served == 0 and grant.because is Because.FIRST_OF_LOAD:
            return  # never counts as overtaking (R44)
        for seq, other in fleet.waiters.items():
            if seq >= grant.seq:
                break
            if grant.gen in other.claim:
                if grant.seq not in self._waiting_before or grant.gen in self._claims_before.get(seq, ()):
                    raise Violation("I23", f"request {grant.seq} came after {seq} claimed generation {grant.gen}")
                self._overtaken[seq] = self._overtaken.get(seq, 0) + 1
                if self._overtaken[seq] > self.world.work.policy.overtakes:
                    raise Violation("I23", f"request {seq} is overtaken {self._overtaken[seq]} times")

    def _start(self, start: StartLoad) -> None:
        world, fleet = self.world, self.world.fleet
        self.loads_started = True
        self.starters.add(start.seq)
        if fleet.closing:
            raise Violation("R68", f"a load starts for {start.seq} although the server is shutting down")
        for runner in fleet.runners.values():
            if runner.key == start.key and runner.state is not State.RECOVERING:
                raise Violation("I05", f"a load of {start.key} starts beside generation {runner.gen}")
        if any(process.alive and process.key == start.key for process in world.processes.values()):
            raise Violation("I05", f"a load of {start.key} starts before its last process is gone")
        earliest = next((waiter for waiter in fleet.waiters.values() if not self._waits_for_load(waiter)), None)
        if earliest is not None and earliest.seq < start.seq:
            before = self._available(earliest)
            after = {id_: before[id_] - start.placement.reservation.get(id_, 0) for id_ in before}
            wishes = self._placements(earliest)
            if _fits_any(wishes, before) and not _fits_any(wishes, after):
                raise Violation("I23", f"the load for {start.seq} takes memory that {earliest.seq} waits for (R55)")

    def _refuse(self, refuse: Refuse) -> None:
        fleet, seq = self.world.fleet, refuse.seq
        waiter = fleet.waiters[seq]
        waiting = len(fleet.waiters) + sum(len(runner.slot_queue) for runner in fleet.runners.values())
        match refuse.because:
            case Because.QUEUE_FULL:
                if waiting <= self.world.work.policy.queue_bound:
                    raise Violation("I13", f"request {seq} is refused, but only {waiting} wait")
                if waiter.admitted or seq in self.starters:
                    raise Violation("I13", f"request {seq} is refused after it was let in")
                for runner in fleet.runners.values():
                    mine = runner.key == waiter.key and compatible(runner.config, waiter.wanted)
                    free = runner.held_slots < runner.slots and not runner.slot_queue
                    if mine and free and runner.state is State.READY and runner.claimed_by is None:
                        raise Violation("R54", f"request {seq} is refused, but {runner.gen} has a free slot")
            case Because.NEVER_FITS:
                totals = sum(device.total for device in fleet.devices)
                if waiter.demand.model.file_size <= totals * 70 // 100 and len(self.world.work.gpus) < 2:
                    raise Violation("R42", f"request {seq} is refused, but {totals} bytes are there")
            case Because.SHUTTING_DOWN:
                if not fleet.closing:
                    raise Violation("I09", f"request {seq} is refused for a shutdown that is not on")
            case Because.PREDECESSOR_STUCK:
                if not any(process.stuck and process.key == waiter.key for process in self.world.processes.values()):
                    raise Violation("R71", f"request {seq} is refused for a stuck process that is not there")

    def _claim(self, claim: Claim) -> None:
        """Only runners that hold what is short, and none too many (R42)."""
        fleet = self.world.fleet
        waiter = fleet.waiters[claim.seq]
        new = claim.gens - waiter.claim
        for gen in claim.gens:
            runner = self._runner(gen)
            if runner.state is not State.READY:
                raise Violation("R43", f"request {claim.seq} claims generation {gen}, which is {runner.state}")
            if runner.claimed_by is not None and runner.claimed_by < claim.seq:
                raise Violation("I23", f"request {claim.seq} claims what {runner.claimed_by} claims")
        if waiter.key in fleet.oom_retries:
            return  # everything goes (R48)
        victims = {gen for gen in new if self._runner(gen).key != waiter.key}
        if not victims:
            return
        if not fleet.facts_fresh:
            self._on_old_figures.update((claim.seq, gen) for gen in victims)
            return
        wishes = self._placements(waiter)
        for gen in victims:
            held = {**self._runner(gen).reservation}
            if not any(held.get(id_, 0) and amount for wish in wishes for id_, amount in wish.need.items()):
                raise Violation("R42", f"generation {gen} holds nothing that request {claim.seq} needs")
        if next(iter(fleet.waiters)) != claim.seq:
            return  # what places of earlier waiters leave is the planner's to say
        if all(wish.kind == "explicit_partial" for wish in wishes) and self._free_models() > 0:
            raise Violation("R46", f"explicit partial offload evicts {sorted(victims)} for bytes")
        idle = not any(self._runner(gen).leases for gen in claim.gens)
        all_of_it = self._available(waiter, claim.gens, drains=not idle)
        for wish in wishes:
            if _fits_any([wish], all_of_it) and not any(
                _fits_any([wish], self._available(waiter, claim.gens - {gen}, drains=not idle)) for gen in victims
            ):
                return
        raise Violation("R42", f"request {claim.seq} claims {sorted(victims)}, more or less than it needs")

    # -- a second opinion on memory -------------------------------------------------------------------------------

    def _runner(self, gen: int) -> Runner:
        return self.world.fleet.runners[gen]

    @staticmethod
    def _waits_for_load(waiter: Waiter) -> bool:
        return waiter.wait is not None and waiter.wait.because is Because.LOADING

    def _free_models(self) -> int:
        counted = sum(ORDER[runner.state] <= ORDER[State.DRAINING] for runner in self.world.fleet.runners.values())
        return self.world.fleet.model_limit - counted

    def _placements(self, waiter: Waiter) -> tuple[Placement, ...]:
        fleet = self.world.fleet
        base = {MODELS: fleet.model_limit}
        for device in fleet.devices:
            held = sum(runner.reservation.get(device.id, 0) for runner in fleet.runners.values())
            stuck = sum(runner.reservation.get(device.id, 0) for runner in fleet.runners.values() if runner.stuck)
            there = min(device.total, device.reported_free + held)
            base[device.id] = max(0, max(0, there - stuck) - device.overhead)
        return placements(waiter.demand.model, waiter.wanted, fleet.devices, base, fleet.policy)

    def _available(self, waiter: Waiter, claim: Iterable[int] | None = None, *, drains: bool = True) -> dict[str, int]:
        """What there is now, what comes back, and what its claim will free, if nobody else took any of it."""
        fleet = self.world.fleet
        claim = waiter.claim if claim is None else claim
        coming: list[Runner] = []
        for runner in fleet.runners.values():
            own = runner.key == waiter.key and (runner.state is not State.READY or not runner.open_to(waiter.seq))
            going = runner.state in (State.STOPPING, State.RECOVERING) or (drains and runner.state is State.DRAINING)
            if not runner.stuck and (own or going or runner.gen in claim):
                coming.append(runner)
        there = {MODELS: max(0, self._free_models())}
        there[MODELS] += sum(ORDER[runner.state] <= ORDER[State.DRAINING] for runner in coming)
        for device in fleet.devices:
            held = sum(runner.reservation.get(device.id, 0) for runner in fleet.runners.values())
            now = max(0, min(device.reported_free, device.total - held) - device.overhead)
            there[device.id] = now + sum(runner.reservation.get(device.id, 0) for runner in coming)
        return there


def _fits_any(wishes: Iterable[Placement], there: dict[str, int]) -> bool:
    return any(all(amount <= there.get(id_, 0) for id_, amount in wish.need.items()) for wish in wishes)
