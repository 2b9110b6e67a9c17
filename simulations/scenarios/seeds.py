"""The text that names a run, so that anybody can have it again: which scenario, which interleaving, which order.

    17          the workload of seed 17 (`workloads.draw`), interleaving 0
    17:3        interleaving 3 of it
    17:3:pct    the same seed of the interleaving, but as an order of random priorities (`explore.priorities`)
    R38         a known race (`corpus.CASES`), interleaving 0
    R38:4:pct

`find` reads such a text, `Spot.text` is it, `Spot.play` has the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulations.explore.priorities import Priorities
from simulations.world.determinism import Order

from .play import play
from .run import Run
from .scenario import Scenario
from .workloads import draw

__all__ = ["ORDERS", "SHUFFLE", "Spot", "UnknownSpotError", "find"]

SHUFFLE: Final = "shuffle"
ORDERS: Final[Mapping[str, Order | None]] = {SHUFFLE: None, "pct": Priorities}
"""How an interleaving comes from its seed, by name."""


class UnknownSpotError(ValueError):
    """A text that names no run."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A scenario and one of its interleavings."""

    name: str
    """Of the scenario: what stands before the first colon."""
    scenario: Scenario
    schedule: int = 0
    order: str = SHUFFLE
    """One of `ORDERS`."""

    @property
    def text(self) -> str:
        """The shortest text that `find` makes this of."""
        if self.order != SHUFFLE:
            return f"{self.name}:{self.schedule}:{self.order}"
        return f"{self.name}:{self.schedule}" if self.schedule else self.name

    def play(self, **more: Any) -> Run:
        """The run; `more`: what else `play` takes (system, interfere, instruments, watched)."""
        return play(self.scenario, schedule=self.schedule, order=ORDERS[self.order], **more)


def find(text: str) -> Spot:
    """The run of that name. Raises `UnknownSpotError`, which says what is wrong with it."""
    name, *rest = text.split(":")
    schedule, order, *more = [*rest, *("0", SHUFFLE)[len(rest) :]]
    if more or not schedule.isdecimal():
        raise UnknownSpotError(f"{text!r} is not SCENARIO[:SCHEDULE[:ORDER]], with a number for SCHEDULE")
    if order not in ORDERS:
        raise UnknownSpotError(f"there is no order {order!r}: {', '.join(ORDERS)}")
    return Spot(name, _scenario(name), int(schedule), order)


def _scenario(name: str) -> Scenario:
    if name.isdecimal():
        return draw(int(name))
    from simulations.corpus import CASES  # it holds a hundred modules that most runs do not need

    try:
        return CASES[name].scenario
    except KeyError:
        raise UnknownSpotError(f"{name!r} is neither the number of a workload nor a known race") from None
