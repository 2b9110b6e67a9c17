"""Simulated processes that work at measured rates, and are slowed down by each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from simulations.world.behaviour import Behaviour
from simulations.world.calls import BROKEN_OFF, UNREACHABLE, SimulatedCall
from simulations.world.factory import SimulatedRunnerFactory
from simulations.world.hardware import SimulatedHardware
from simulations.world.runners import SimulatedRunner
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler.core.records import Runner

from .rates import ModelRates, Rates

__all__ = ["PacedRunnerFactory", "call_body"]

PIECES: Final = 8
"""Parts of a prompt or of an answer; the company that slows it down is looked at anew for each."""
LONGEST: Final = 10.0
"""Seconds of a part at most: a runner that is silent for long counts as hung (R81)."""
SETTLE: Final = 0.01
"""Seconds in which a runner notices that a client has left."""


def call_body(prompt_tokens: int, output_tokens: int) -> Mapping[str, Any]:
    return {"prompt_tokens": prompt_tokens, "n_predict": output_tokens}


class PacedRunnerFactory(SimulatedRunnerFactory):
    """`record` finds the scheduler's own record of a launch: its processes take what was reserved for them."""

    def __init__(self, hardware: SimulatedHardware, rates: Rates, record: Callable[[LaunchSpec], Runner]) -> None:
        super().__init__(hardware, lambda spec: record(spec).reservation)
        self.rates = rates
        self._record = record
        self.paced: list[PacedRunner] = []

    def _usually(self, spec: LaunchSpec) -> Behaviour:
        model = self._record(spec).model
        seconds = self.rates.load(model.name, model.file_size)
        return Behaviour(load_time=seconds, term_time=self.rates.exit, settle_time=SETTLE)

    def _process(self, pid: int, spec: LaunchSpec, behaviour: Behaviour) -> PacedRunner:
        record = self._record(spec)
        runner = PacedRunner(pid, spec, behaviour, self._hardware, self._reserved(spec))
        runner.fit_out(self, record)
        self.paced.append(runner)
        return runner

    def _reserved(self, spec: LaunchSpec) -> dict[str, int]:
        return {id_: amount for id_, amount in self._record(spec).reservation.items() if id_ != "models"}

    def busy(self) -> Iterator[PacedRunner]:
        self.paced = [runner for runner in self.paced if runner.exited is None]
        return (runner for runner in self.paced if runner.unsettled)


class PacedRunner(SimulatedRunner):
    def fit_out(self, factory: PacedRunnerFactory, record: Runner) -> None:
        placement = record.placement
        self.rates: ModelRates = factory.rates.of(record.model.name)
        self.devices = placement.load_lock or frozenset(placement.gpus)
        """Where it computes."""
        self._factory = factory

    def slowdown(self) -> float:
        """How many times as long its work takes at this moment as alone."""
        beside = sum(other is not self and not self.devices.isdisjoint(other.devices) for other in self._factory.busy())
        rates = self._factory.rates
        return rates.slowdown(max(0, len(self.unsettled) - 1), beside) / rates.speed

    def stream(self, path: str, body: Mapping[str, Any]) -> PacedCall:
        return PacedCall(self, path, body)


class PacedCall(SimulatedCall):
    """The whole prompt before the head, which comes with the first token; the other tokens in a few parts."""

    _runner: PacedRunner

    async def _read_prompt(self) -> None:
        rates = self._runner.rates
        await self._work(self._body["prompt_tokens"] / rates.prefill, UNREACHABLE)
        await self._wait(rates.overhead, UNREACHABLE)

    async def receive(self) -> list[dict[str, Any]]:
        if not self._generates or self._over:
            answer = [] if self._over else [self._answer()]
            await self._wait(0, BROKEN_OFF)
            self._finish()
            return answer
        count = 1
        if self._given:
            rest = self._left - self._given
            count = min(rest, max(1, self._left // PIECES))
            await self._work(count * self._runner.rates.token, BROKEN_OFF)
        else:
            await self._wait(0, BROKEN_OFF)
        self._given += count
        if self._given < self._left:
            return [{"tokens": count}]
        self._finish()
        return [{"tokens": count}, {"stop": True}]

    async def _work(self, seconds: float, phase: str) -> None:
        """What takes so long alone. Who comes or goes during a part counts from the next one on."""
        part = min(LONGEST, seconds / (1 if self._given else PIECES))
        while seconds > 0:
            step = min(part, seconds)
            await self._wait(step * self._runner.slowdown(), phase)
            seconds -= step
