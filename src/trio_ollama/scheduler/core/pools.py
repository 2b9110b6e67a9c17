"""How many bytes of each resource there are at one moment: the pools the planner draws from (docs/scheduler.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .lifecycle import DRAINING, ENDING
from .memory import saturating_sub, usable
from .records import Runner
from .values import MODELS, DeviceFacts

__all__ = ["Pools"]


class Pools:
    """Bytes by resource. Every subtraction saturates at zero (I08).

    `now`: free at this moment. `soon`: held by runners that are ending. `later`: held by runners that end with their
    last request. `base`: what there is when all our runners are gone.

    Each has an entry for every device and for the model limit, and so for whatever a placement of this pass may need.
    """

    def __init__(self, devices: Sequence[DeviceFacts], runners: Iterable[Runner], model_limit: int) -> None:
        ids = [*(device.id for device in devices), MODELS]
        self.now: dict[str, int] = {}
        self.soon: dict[str, int] = dict.fromkeys(ids, 0)
        self.later: dict[str, int] = dict.fromkeys(ids, 0)
        self.base: dict[str, int] = {}
        reserved = dict.fromkeys(ids, 0)
        stuck = dict.fromkeys(ids, 0)
        for runner in runners:
            held = runner.held()
            _add(reserved, held)
            if runner.stuck:
                _add(stuck, held)
            elif runner.state in ENDING:
                _add(self.soon, held)
            elif runner.state is DRAINING:
                _add(self.later, held)
        for device in devices:
            id_ = device.id
            self.now[id_] = usable(device.total, device.reported_free, reserved[id_], device.overhead)
            # Stuck bytes are neither coming back nor there (fault a of docs/scheduler.md).
            there = min(device.total, device.reported_free + reserved[id_])
            self.base[id_] = max(0, there - stuck[id_] - device.overhead)
        self.now[MODELS] = saturating_sub(model_limit, reserved[MODELS])
        self._over_limit = saturating_sub(reserved[MODELS], model_limit)
        self.base[MODELS] = model_limit

    def fits_now(self, need: Mapping[str, int]) -> bool:
        now = self.now
        for id_, amount in need.items():  # noqa: SIM110 - the planner's innermost loop
            if amount > now[id_]:
                return False
        return True

    def fits_soon(self, need: Mapping[str, int]) -> bool:
        now, soon = self.now, self.soon
        for id_, amount in need.items():  # noqa: SIM110 - the planner's innermost loop
            if amount > now[id_] + soon[id_]:
                return False
        return True

    def fits_later(self, need: Mapping[str, int]) -> bool:
        return all(
            amount <= self.now.get(id_, 0) + self.soon.get(id_, 0) + self.later.get(id_, 0)
            for id_, amount in need.items()
        )

    def short(self, need: Mapping[str, int]) -> tuple[str, int]:
        """The resource that lacks most for `need` at this moment, and how much; ("", 0) if it is all there."""
        worst, most, now = "", 0, self.now
        for id_, amount in need.items():
            missing = amount - now[id_]
            if missing > most:
                worst, most = id_, missing
        return worst, most

    def aborted(self, runner: Runner) -> None:
        """Its bytes come back after its exit, its model unit at once (I14)."""
        if self._over_limit:
            self._over_limit -= 1
        else:
            self.now[MODELS] += 1
        _add(self.soon, {id_: amount for id_, amount in runner.held().items() if id_ != MODELS})

    def going(self, held: Mapping[str, int]) -> None:
        """What a runner holds comes back when its last request has ended."""
        _add(self.later, held)

    def draw(self, need: Mapping[str, int], *pools: dict[str, int]) -> None:
        """Take `need` out of `pools` in their order, as far as it is there: a waiter's place."""
        for id_, amount in need.items():
            for pool in pools:
                there = pool.get(id_, 0)
                if amount <= there:
                    pool[id_] = there - amount
                    break
                pool[id_] = 0
                amount -= there


def _add(pool: dict[str, int], held: Mapping[str, int]) -> None:
    for id_, amount in held.items():
        if id_ in pool:
            pool[id_] += amount
        else:
            pool[id_] = amount
