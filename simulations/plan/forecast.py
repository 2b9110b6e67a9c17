"""Play a trace on the real scheduler in a simulated machine: the forecast of what becomes of each request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median
from typing import Any, Final

import trio

from simulations.world import determinism
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler import FOREVER, Demand, Lease, ModelFacts, Policy, Scheduler, SchedulingError
from trio_ollama.scheduler.core.context import default_context
from trio_ollama.scheduler.core.events import DrainStarted, Event, LoadStarted, RunnerLoaded
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.memory import total_vram
from trio_ollama.scheduler.core.records import Runner

from .machine import Machine
from .processes import PacedRunnerFactory, call_body
from .rates import Rates
from .trace import Asked, Seen, Trace

__all__ = ["PROMPT", "TOKENS", "Forecast", "Plan", "forecast"]

PROMPT: Final = 100
TOKENS: Final = 100
"""Of requests whose sizes nobody knows, in a model of which none is known."""
ENDLESS: Final = 1_000_000
"""Tokens of an answer that goes on until its client leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to play, and on what."""

    trace: Trace
    machine: Machine
    rates: Rates = field(default_factory=Rates)
    policy: Policy = field(default_factory=Policy)
    gpu_overhead: int = 0


@dataclass(slots=True)
class Forecast:
    """What became of the requests, in order of their arrival, and of the models."""

    seen: list[Seen] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    """Models, once for each load that came to its end."""
    unloads: list[tuple[str, str]] = field(default_factory=list)
    """Models, and why they went."""
    split: set[str] = field(default_factory=set)
    """Models that were loaded with a part in RAM beside a GPU, or in RAM alone."""


def forecast(plan: Plan) -> Forecast:
    """The same plan gives the same forecast."""
    result = Forecast()
    determinism.run(_play, plan, result, seed=0, order=_InOrder)
    return result


class _InOrder(Random):
    """Tasks run in the order in which they were started: so requests of one instant come as the trace has them."""

    def shuffle(self, batch: MutableSequence[Any]) -> None:
        batch.reverse()  # the last one runs first


async def _play(plan: Plan, result: Forecast) -> None:
    player = _Player(plan, result)
    async with trio.open_nursery() as nursery:
        await nursery.start(player.scheduler.run)
        async with trio.open_nursery() as clients:
            for number, asked in enumerate(plan.trace.requests):
                clients.start_soon(player.ask, number, asked)
        player.over = True
        nursery.cancel_scope.cancel("all requests have ended")
    result.seen += [player.seen[number] for number in range(len(plan.trace.requests))]


class _Player:
    def __init__(self, plan: Plan, result: Forecast) -> None:
        self._plan = plan
        self._result = result
        self._usual = _usual_sizes(plan.trace)
        self._loads: dict[int, float] = {}
        self._ready: dict[int, float] = {}
        self.seen: dict[int, Seen] = {}
        self.over = False
        hardware = plan.machine.make()
        self.scheduler = Scheduler(
            hardware=hardware,
            runners=PacedRunnerFactory(hardware, plan.rates, self._record),
            policy=plan.policy,
            gpu_overhead=plan.gpu_overhead,
            on_event=self._happened,
        )

    def _record(self, spec: LaunchSpec) -> Runner:
        """The scheduler's record of the process that is being started."""
        runners = self.scheduler.fleet.runners.values()
        return next(runner for runner in runners if runner.model.path == spec.model and runner.state is State.SPAWNING)

    def _happened(self, event: Event) -> None:
        if self.over:
            return
        match event:
            case LoadStarted(gen=gen):
                self._loads[gen] = event.at / 1e9
                if event.kind not in ("single", "group"):
                    self._result.split.add(event.model)
            case RunnerLoaded(gen=gen):
                self._ready[gen] = event.at / 1e9
                self._result.loads.append(event.model)
            case DrainStarted():
                self._result.unloads.append((event.model, str(event.because)))

    async def ask(self, number: int, asked: Asked) -> None:
        """Be the client of one request, to its end."""
        await trio.sleep_until(asked.at)
        look = _Look(asked)
        outcome, error = "answered", ""
        with trio.CancelScope(deadline=math.inf if asked.left is None else asked.at + asked.left) as scope:
            await trio.lowlevel.checkpoint()
            try:
                await self._serve(asked, look)
            except SchedulingError as problem:
                outcome, error = ("refused" if look.gen is None else "failed"), type(problem).__name__
            except Exception as problem:
                outcome, error = "failed", type(problem).__name__
        if scope.cancelled_caught:
            outcome = "cancelled"
        self.seen[number] = Seen(
            model=asked.model,
            outcome=outcome,
            error=error,
            queue=look.queue,
            load=look.load,
            first=look.first,
            total=trio.current_time() - asked.at,
            gen=look.gen,
        )

    async def _serve(self, asked: Asked, look: _Look) -> None:
        lease = await self.scheduler.acquire(self._demand(asked))
        try:
            now = trio.current_time()
            gen = look.gen = lease.generation
            look.load = max(0.0, min(now, self._ready[gen]) - max(asked.at, self._loads[gen]))
            look.queue = now - asked.at - look.load
            if asked.what == "generate":
                await self._generate(lease, asked, look)
            elif asked.what == "embed":
                await self._embed(lease, asked)
                look.first = trio.current_time() - asked.at
        finally:
            lease.release()

    async def _generate(self, lease: Lease, asked: Asked, look: _Look) -> None:
        prompt, tokens = self._sizes(asked)
        async with lease.stream("/completion", call_body(prompt, max(1, tokens))) as call:
            while await call.receive():
                if look.first is None:
                    look.first = trio.current_time() - asked.at

    async def _embed(self, lease: Lease, asked: Asked) -> None:
        prompt, _ = self._sizes(asked)
        for _ in range(asked.inputs):
            async with lease.slot():
                await lease.ask("/v1/embeddings", call_body(math.ceil(prompt / asked.inputs), 0))

    def _sizes(self, asked: Asked) -> tuple[int, int]:
        """Tokens of the prompt that must be read, and of the answer."""
        prompt, tokens = self._usual.get((asked.model, asked.what), (PROMPT, TOKENS))
        if asked.prompt_tokens is not None:
            prompt = max(0, asked.prompt_tokens - asked.cached_tokens)
        if asked.cut:
            return prompt, ENDLESS
        return prompt, tokens if asked.output_tokens is None else asked.output_tokens

    def _demand(self, asked: Asked) -> Demand:
        options = asked.options
        if options.num_ctx_auto:  # it depends on the machine
            options = replace(options, num_ctx=default_context(total_vram(self.scheduler.devices())))
        keep: int | None = None
        if asked.keep_alive is not None:
            keep = FOREVER if asked.keep_alive < 0 else round(asked.keep_alive * 1e9)
        facts: ModelFacts = self._plan.trace.facts(asked.model)
        if asked.what == "embed":
            options = replace(options, embeddings=True)
        return Demand(facts, options, keep_alive=keep, slot=asked.what == "generate")


@dataclass(slots=True)
class _Look:
    """What has been seen of a request so far."""

    asked: Asked
    gen: int | None = None
    queue: float | None = None
    load: float | None = None
    first: float | None = None


def _usual_sizes(trace: Trace) -> Mapping[tuple[str, str], tuple[int, int]]:
    """Medians of what is known, for requests that left before anybody could know."""
    prompts, tokens = defaultdict(list), defaultdict(list)
    for asked in trace.requests:
        if asked.prompt_tokens is not None:
            prompts[asked.model, asked.what].append(max(0, asked.prompt_tokens - asked.cached_tokens))
        if asked.output_tokens is not None:
            tokens[asked.model, asked.what].append(asked.output_tokens)
    return {
        key: (
            round(median(prompts[key])) if key in prompts else PROMPT,
            round(median(tokens[key])) if key in tokens else TOKENS,
        )
        for key in {*prompts, *tokens}
    }
