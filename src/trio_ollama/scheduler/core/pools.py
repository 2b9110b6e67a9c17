"""How many bytes of each resource there are at one moment: the pools the planner draws from (planner.md, section 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .lifecycle import State
from .memory import saturating_sub
from .records import Runner
from .values import MODELS, DeviceFacts

__all__ = ["Pools"]


class Pools:
    """Bytes by resource. Every subtraction saturates at zero (I08).

    `now`: free at this moment. `soon`: held by runners that are ending. `later`: held by runners that end with their
    last request. `base`: what there is when all our runners are gone.
    """

    def __init__(self, devices: Sequence[DeviceFacts], runners: Iterable[Runner], model_limit: int) -> None:
        runners = list(runners)
        self.now: dict[str, int] = {}
        self.soon: dict[str, int] = {}
        self.later: dict[str, int] = {}
        self.base: dict[str, int] = {}
        for device in devices:
            id_ = device.id
            reserved = sum(runner.holds(id_) for runner in runners)
            stuck = sum(runner.holds(id_) for runner in runners if runner.stuck)
            self.now[id_] = saturating_sub(
                min(device.reported_free, saturating_sub(device.total, reserved)), device.overhead
            )
            self.soon[id_] = sum(
                runner.holds(id_)
                for runner in runners
                if runner.state in (State.STOPPING, State.RECOVERING) and not runner.stuck
            )
            self.later[id_] = sum(runner.holds(id_) for runner in runners if runner.state is State.DRAINING)
            # Stuck bytes are neither coming back nor there (planner.md, fault a).
            there = min(device.total, device.reported_free + reserved)
            self.base[id_] = saturating_sub(saturating_sub(there, stuck), device.overhead)
        counted = sum(runner.counted for runner in runners)
        self.now[MODELS] = saturating_sub(model_limit, counted)
        self.soon[MODELS] = 0
        self.later[MODELS] = sum(runner.state is State.DRAINING for runner in runners)
        self.base[MODELS] = model_limit

    def fits_now(self, need: Mapping[str, int]) -> bool:
        return all(amount <= self.now.get(id_, 0) for id_, amount in need.items())

    def fits_soon(self, need: Mapping[str, int]) -> bool:
        return all(amount <= self.now.get(id_, 0) + self.soon.get(id_, 0) for id_, amount in need.items())

    def total(self, id_: str, *, with_later: bool) -> int:
        return self.now.get(id_, 0) + self.soon.get(id_, 0) + (self.later.get(id_, 0) if with_later else 0)

    def returning(self, runner: Runner, pool: dict[str, int]) -> None:
        """Count what `runner` holds as coming back, in `soon` or `later`."""
        for id_ in runner.reservation:
            pool[id_] = pool.get(id_, 0) + runner.holds(id_)

    def draw(self, need: Mapping[str, int], *pools: dict[str, int]) -> None:
        """Take `need` out of `pools` in their order, as far as it is there: a waiter's place."""
        for id_, amount in need.items():
            for pool in pools:
                taken = min(amount, pool.get(id_, 0))
                pool[id_] = pool.get(id_, 0) - taken
                amount -= taken
