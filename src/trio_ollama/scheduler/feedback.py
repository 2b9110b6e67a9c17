"""What loads have really taken, kept for the next estimates of the same models: in memory, and wherever `save` puts it.

A load report becomes `Taken` here, as devices have other names for the child than for us.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import trio

from trio_ollama.runners.contract import HOST, LoadReport

from .core.measured import Taken
from .core.observed import identity
from .core.values import Demand, ModelFacts, Observation

__all__ = ["Feedback", "History", "taken"]

MODELS: Final = 512
LAUNCHES: Final = 16
"""Kept at most: models, and configurations of each; the oldest go first."""

History = Mapping[str, Sequence[Observation]]
"""Observations by the identity of their model, the latest last."""

log = logging.getLogger("trio_ollama.scheduler")


def taken(report: LoadReport, gpus: Sequence[str]) -> Taken:
    """What a child on these GPUs holds; it numbers those it sees in their order."""
    if not report.buffers:
        return Taken(None, None, report.resident, report.private)
    on_gpus: dict[str, int] = dict.fromkeys(gpus, 0)
    for name, size in report.bytes_by_device.items():
        if name == HOST:
            continue
        number = re.search(r"\d+$", name)
        index = int(number[0]) if number else 0
        if index >= len(gpus):  # a device that it was not to see
            return Taken(None, report.bytes_by_device.get(HOST, 0), report.resident, report.private)
        on_gpus[gpus[index]] += size
    return Taken(on_gpus, report.bytes_by_device.get(HOST, 0), report.resident, report.private)


class Feedback:
    """`save` is called in a thread with all there is, whenever there is something new; it may raise OSError."""

    def __init__(self, history: History | None = None, save: Callable[[History], None] | None = None) -> None:
        self._history: OrderedDict[str, tuple[Observation, ...]] = OrderedDict()
        for key, observations in (history or {}).items():
            self._keep(key, observations)
        self._save = save
        self._news = trio.Event()

    def informed(self, demand: Demand) -> Demand:
        """The demand, with what is known of its model."""
        observed = self._history.get(identity(demand.model), ())
        if observed == demand.model.observed:
            return demand
        return replace(demand, model=replace(demand.model, observed=observed))

    def note(self, model: ModelFacts, observation: Observation) -> None:
        """A load has been measured: the last one of each configuration counts."""
        key = identity(model)
        before = self._history.get(key, ())
        if observation in before[-1:]:
            return
        self._keep(key, [*(each for each in before if each.launch != observation.launch), observation])
        self._news.set()

    @property
    def lasting(self) -> bool:
        """It is to be saved: `run` has something to do."""
        return self._save is not None

    async def run(self) -> None:
        """Save what is new until cancelled. A disk that does not take it is told of once; the memory stays."""
        complained = False
        while True:
            await self._news.wait()
            self._news = trio.Event()
            assert self._save is not None
            try:
                await trio.to_thread.run_sync(self._save, dict(self._history))
            except OSError as error:
                if not complained:
                    log.warning("what models really take cannot be kept for the next start: %s", error)
                complained = True

    def _keep(self, key: str, observations: Iterable[Observation]) -> None:
        self._history[key] = tuple(observations)[-LAUNCHES:]
        self._history.move_to_end(key)
        while len(self._history) > MODELS:
            self._history.popitem(last=False)
