"""Where a model would go, what it would take and who would have to leave, before anything is loaded.

Pure, and made of what the planner itself is made of: the same placements, pools and victims. Nobody waits in this
picture; whoever does wait at the moment may get the room first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from .config import launchable, wanted
from .eviction import Candidates
from .expected import expected
from .fit import ContextFit, DeviceFit, Fit, Part, Verdict, Victim
from .footprint import Footprint
from .lifecycle import State
from .memory import predict_vram, saturating_sub
from .placements import never_fits, placements
from .pools import Pools
from .ranking import Ranking
from .records import Runner
from .reload import difference
from .values import MODELS, RAM, Demand, DeviceFacts, LaunchConfig, Placement, Policy
from .view import FleetView

__all__ = ["fit"]

CONTEXTS: Final = (4096, 8192, 32768)
"""Looked at beside the longest one."""
LONGEST: Final = 1 << 20
"""Tokens, where the model does not tell what it was trained for."""
STEP: Final = 256
FULL: Final = ("single", "group")


def fit(fleet: FleetView, demand: Demand, policy: Policy | None = None) -> Fit:
    """Look where `demand` would be served. `policy`: another one than the fleet's, to see what it would change."""
    return _Look(fleet, demand, policy or fleet.policy).result()


class _Look:
    def __init__(self, fleet: FleetView, demand: Demand, policy: Policy) -> None:
        self.fleet = fleet
        self.devices = fleet.devices
        self.policy = policy
        self.model = demand.model
        self.want = wanted(demand, policy)
        runners = fleet.runners.values()
        self.pools = Pools(fleet.devices, runners, fleet.model_limit)
        self.candidates = Candidates(runners, self.pools)
        alive = [runner for runner in runners if runner.state is not State.RECOVERING]
        self.own = next((runner for runner in reversed(alive) if runner.key == self.model.key), None)
        self.ranking = Ranking(fleet.devices, self.pools.now)

    def result(self) -> Fit:
        hopeless = never_fits(self.model, self.want, self.devices, self.policy)
        verdict, placement, gens = self._verdict(hopeless is not None)
        own = self.own
        victims = [self.fleet.runners[gen] for gen in sorted(gens)]
        coming = self._coming(victims, going=verdict is Verdict.RETURNING)
        if verdict is Verdict.LOADED and own is not None:
            placement, config, mmap = own.placement, own.config, ""
        else:
            config, mmap = self._launch(placement, victims, coming)
        chosen = [device for device in self.devices if device.id in placement.gpus]
        expectation = expected(self.model, config, self.policy, chosen, batch=config.num_batch)
        return Fit(
            self.model,
            verdict,
            hopeless or (0, 0),
            config,
            mmap,
            placement,
            tuple(_parts(expectation.parts, bool(chosen))),
            expectation,
            predict_vram(self.model, config.num_ctx, config.parallel),
            own,
            tuple(self._device(device, placement, coming, verdict) for device in self.devices),
            tuple(Victim(one.gen, one.model.name, one.busy, one.held()) for one in victims),
            tuple(map(self._context, self._contexts())),
            self._largest(),
        )

    def _verdict(self, hopeless: bool) -> tuple[Verdict, Placement, frozenset[int]]:
        """What would happen, where it would go, and the runners that would be stopped for it."""
        own, pools = self.own, self.pools
        wished = self._placements(self.want)
        nobody: frozenset[int] = frozenset()
        if own is not None and self._serves(own):
            return Verdict.LOADED, own.placement, nobody
        if hopeless:
            return Verdict.NEVER, wished[0], nobody
        must_go = frozenset({own.gen}) if own is not None and own.state is State.READY else nobody
        if not must_go:
            fitting = [one for one in wished if pools.fits_now(one.need)]
            if fitting and own is None:
                return Verdict.FITS, fitting[0], nobody
            soon = [one for one in wished if pools.fits_soon(one.need)]
            if soon:
                return Verdict.RETURNING, soon[0], nobody
        for idle_only, verdict in ((True, Verdict.EVICTS), (False, Verdict.EVICTS_BUSY)):
            found = self.candidates.cheapest(wished, must_go, idle_only=idle_only)
            if found is not None:
                placement, gens = found
                return (verdict if gens else Verdict.RETURNING), placement, gens
        return Verdict.BLOCKED, wished[0], must_go

    def _serves(self, own: Runner) -> bool:
        alive = own.state is State.READY or own.loading
        # The number of slots is the policy's, and here that may be another one.
        return alive and own.config.parallel == self.want.parallel and difference(own.config, self.want) is None

    def _placements(self, config: LaunchConfig) -> Sequence[Placement]:
        return self.ranking.best_first(placements(self.model, config, self.devices, self.pools.base, self.policy))

    def _coming(self, victims: Iterable[Runner], *, going: bool) -> dict[str, int]:
        """Bytes by device that come back before the load begins."""
        coming = {device.id: 0 for device in self.devices}
        for pool in (self.pools.soon, self.pools.later) if going else (self.pools.soon,):
            for id_ in coming:
                coming[id_] += pool[id_]
        for victim in victims:
            for id_ in coming:
                coming[id_] += victim.holds(id_)
        return coming

    def _launch(
        self, placement: Placement, victims: Sequence[Runner], coming: Mapping[str, int]
    ) -> tuple[LaunchConfig, str]:
        gone = {victim.gen for victim in victims}
        loaded = [runner for runner in self.fleet.runners.values() if runner.counted and runner.gen not in gone]
        devices = [
            replace(device, reported_free=min(device.total, device.reported_free + coming[device.id]))
            for device in self.devices
        ]
        return launchable(self.want, self.model, placement, devices, loaded, self.policy)

    def _device(
        self, device: DeviceFacts, placement: Placement, coming: Mapping[str, int], verdict: Verdict
    ) -> DeviceFit:
        id_ = device.id
        usable, returning = self.pools.now[id_], coming[id_]
        loaded = verdict is Verdict.LOADED and self.own is not None
        held = self.own.holds(id_) if loaded and self.own is not None else placement.reservation.get(id_, 0)
        there = min(usable + returning, self.pools.base[id_])
        return DeviceFit(
            id_,
            device.library,
            device.total,
            device.reported_free,
            sum(runner.holds(id_) for runner in self.fleet.runners.values()),
            usable,
            returning,
            0 if loaded else placement.need.get(id_, 0),
            held,
            usable if loaded else saturating_sub(there, held),
        )

    # -- contexts -------------------------------------------------------------------------------------------------

    @property
    def _most(self) -> int:
        return self.model.train_context or LONGEST

    def _contexts(self) -> list[int]:
        """Without a known limit, the longest is what is asked for."""
        most = self.model.train_context or self.want.num_ctx
        return sorted({*(each for each in CONTEXTS if each < most), most})

    def _context(self, num_ctx: int) -> ContextFit:
        config = replace(self.want, num_ctx=num_ctx)
        best = self._placements(config)[0]
        gpus = [device for device in self.devices if device.id in best.gpus]
        # A batch is chosen with the placement: what it reserves is the whole truth, unless there was too little.
        whole = expected(self.model, config, self.policy, gpus)
        reserved = sum(amount for id_, amount in best.reservation.items() if id_ != MODELS)
        full = best.kind in FULL or (best.kind == "cpu" and whole.total <= self.pools.base[RAM])
        return ContextFit(
            num_ctx,
            reserved if full else max(reserved, whole.total),
            predict_vram(self.model, num_ctx, config.parallel),
            best.kind,
            best.gpus,
            full,
            full and self.pools.fits_now(best.need),
        )

    def _largest(self) -> int:
        """By halving: a longer context never needs less."""
        if self._context(self._most).full:
            return self._most
        fits, fails = 0, self._most
        while fails - fits > STEP:
            middle = (fits + fails) // 2 // STEP * STEP
            if middle in (fits, fails):
                break
            if self._context(middle).full:
                fits = middle
            else:
                fails = middle
        return fits


def _parts(footprint: Footprint, on_gpus: bool) -> Iterable[Part]:
    """Everything that is not zero, in the order of the footprint."""
    nothing = Footprint(weights=0, cache=0)
    for field in fields(footprint):
        size = getattr(footprint, field.name)
        if size:
            yield Part(field.name, size, on_gpus and replace(nothing, **{field.name: 1}).movable == 1)
