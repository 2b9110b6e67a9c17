"""Random workloads for the pure fleet: sixteen kinds, each a machine, a policy, models, requests and faults.

Sizes in GiB, times in nanoseconds. Everything is drawn from the seed before the run, so that what happens in a run
depends on the fleet's decisions only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from trio_ollama.scheduler.core.values import FOREVER, Demand, LoadOptions, ModelFacts, Policy

__all__ = ["GIB", "KINDS", "MS", "Arrival", "Faults", "S", "Workload", "workload"]

GIB: Final = 1 << 30
S: Final = 10**9
MS: Final = 10**6

KEEP_ALIVES: Final = (None, None, None, 0, MS, 5 * S, 300 * S, FOREVER)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request. `patience`: when its client leaves, if it is not done by then."""

    at: int
    demand: Demand
    generation: int
    patience: int | None = None
    inputs: int = 0
    """For an embeddings batch: calls that take a slot each, under a lease without one."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities for each process or event, unless said otherwise."""

    load_error: float = 0.0
    out_of_memory: float = 0.0
    spawn_error: float = 0.0
    crash: float = 0.0
    stuck: float = 0.0
    late_slot: float = 0.3
    hang: float = 0.0
    runtime_oom: tuple[int, ...] = ()
    """Instants at which some call runs out of memory."""


@dataclass(slots=True)
class Workload:
    kind: str
    gpus: Sequence[float] = (24,)
    ram: float = 256
    overhead: float = 0
    integrated: bool = False
    policy: Policy = field(default_factory=Policy)
    models: Sequence[tuple[str, float]] = ()
    arrivals: list[Arrival] = field(default_factory=list)
    stops: list[tuple[int, str]] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    foreign: list[tuple[int, int, float]] = field(default_factory=list)
    """(instant, GPU index, GiB) that other programs hold from then on."""
    close_at: int | None = None
    lag: int = 0
    """How old the driver's figures are."""
    recovery: int = 0
    """How long freed memory takes to come back at most."""
    load: tuple[int, int] = (S // 2, 8 * S)
    exit: int = S
    """The longest a process takes to exit after it was asked to."""


def facts(name: str, size: float) -> ModelFacts:
    return ModelFacts(name, name, f"/models/{name}", round(size * GIB), architecture="llama", layers=32)


class _Draw:
    """Draws one workload. A kind fills in what makes it special; the rest is common."""

    def __init__(self, kind: str, seed: int) -> None:
        self.random = Random(f"workload {seed}")
        self.kind = kind
        self.work = Workload(kind)
        self.policy: dict[str, Any] = {
            "num_parallel": self.random.choice((1, 1, 2, 4)),
            "overtakes": self.random.choice((0, 1, 4, 4)),
        }
        self.count = self.random.randint(30, 70)
        self.gap = self.random.choice((20 * MS, 200 * MS, S, 3 * S))
        self.longest = self.random.choice((50 * MS, 2 * S, 8 * S))
        self.leave = self.random.choice((0.0, 0.05, 0.2))
        self.options: Sequence[LoadOptions] = (LoadOptions(),)
        self.weights: Sequence[float] | None = None

    def small_and_big(self, small: int = 3) -> None:
        gpu = min(self.work.gpus, default=self.work.ram)
        sizes = [self.random.choice((0.08, 0.12, 0.2, 0.3)) * gpu for _ in range(small)]
        sizes += [self.random.choice((0.5, 0.6, 0.75)) * gpu]
        self.work.models = [(f"m{number}", size) for number, size in enumerate(sizes)]

    def add_faults(self) -> None:
        """Everything that can go wrong with processes, drivers and people, all at once."""
        random, work = self.random, self.work
        work.faults = Faults(
            load_error=0.1,
            spawn_error=0.05,
            crash=0.15,
            stuck=random.choice((0.0, 0.0, 0.2)),
            hang=0.05,
            runtime_oom=tuple(random.randint(0, self.span) for _ in range(random.choice((0, 0, 2)))),
        )
        if work.gpus:
            work.foreign = [
                (random.randint(0, self.span), random.randrange(len(work.gpus)), random.choice((0, 2, 6)))
                for _ in range(4)
            ]
        names = [name for name, _ in work.models]
        work.stops += [(random.randint(0, self.span), random.choice(names)) for _ in range(3)]
        if random.random() < 0.3:
            work.close_at = random.randint(0, self.span)

    def finish(self) -> Workload:
        random, work = self.random, self.work
        if not work.models:
            self.small_and_big()
        if self.kind != "trouble" and random.random() < 0.15:
            self.add_faults()
        work.lag = random.choice((0, 0, S // 2, 3 * S))
        work.recovery = random.choice((0, S // 4, 2 * S, 5 * S))
        work.load = random.choice(((S // 2, S), (S, 8 * S)))
        work.exit = random.choice((10 * MS, S))
        if random.random() < 1 / 3:
            work.faults = replace(work.faults, load_error=random.choice((0.0, 0.1)), out_of_memory=0.2)
        work.policy = Policy(**self.policy)
        at = 0
        for _ in range(self.count):
            at += round(random.expovariate(1 / self.gap))
            work.arrivals.append(self.arrival(at))
        return work

    def arrival(self, at: int) -> Arrival:
        random, work = self.random, self.work
        name, size = random.choices(work.models, self.weights)[0]
        batch = random.random() < 0.05
        demand = Demand(
            facts(name, size),
            random.choice(self.options),
            random.choice(KEEP_ALIVES),
            slot=not batch and random.random() > 0.03,
        )
        patience = round(random.expovariate(1 / (4 * S))) if random.random() < self.leave else None
        inputs = random.randint(1, 4) if batch else 0
        return Arrival(at, demand, random.randint(MS, self.longest), patience, inputs)

    @property
    def span(self) -> int:
        return self.count * self.gap


def _hot_and_big(draw: _Draw) -> None:
    draw.work.models = (("hot", 6), ("big", 16))
    draw.weights = (9, 1)
    draw.gap = 200 * MS


def _ping_pong(draw: _Draw) -> None:
    draw.work.models = (("a", 14), ("b", 14))
    draw.gap = draw.random.choice((100 * MS, S))


def _options(draw: _Draw) -> None:
    draw.work.models = (("a", 6), ("b", 10))
    draw.options = tuple(LoadOptions(num_ctx=ctx, num_ctx_auto=auto) for ctx, auto in _contexts(draw.random))


def _contexts(random: Random) -> Sequence[tuple[int, bool]]:
    return random.choice((((2048, False), (8192, False)), ((4096, True), (65536, False), (2048, False))))


def _smalls_and_big(draw: _Draw) -> None:
    draw.small_and_big(small=8)
    draw.gap = 300 * MS


def _pinned(draw: _Draw) -> None:
    draw.small_and_big()
    draw.policy["keep_alive"] = FOREVER


def _several_devices(draw: _Draw) -> None:
    draw.work.gpus = draw.random.choice(((24, 24), (24, 12), (24, 24, 24), (48, 8)))
    draw.small_and_big(small=5)


def _wide(draw: _Draw) -> None:
    draw.work.gpus = draw.random.choice(((24, 24), (24, 16, 24)))
    draw.work.models = (("s", 3), ("t", 8), ("u", 12), ("wide", 30), ("partial", 60))
    draw.weights = (4, 3, 2, 2, 1)
    draw.policy["spread"] = draw.random.random() < 0.3


def _never_fits(draw: _Draw) -> None:
    draw.work.ram = 32
    draw.work.models = (("a", 8), ("b", 15), ("partial", 30), ("huge", 300))


def _cancels(draw: _Draw) -> None:
    draw.leave = 0.7
    draw.gap = draw.random.choice((50 * MS, 500 * MS))


def _stops(draw: _Draw) -> None:
    draw.small_and_big()
    names = [name for name, _ in draw.work.models]
    draw.work.stops = [(draw.random.randint(0, draw.span), draw.random.choice(names)) for _ in range(20)]


def _cpu_only(draw: _Draw) -> None:
    draw.work.gpus = ()
    draw.work.ram = 32
    draw.work.models = (("a", 8), ("b", 16), ("c", 20), ("d", 2))


def _few(draw: _Draw) -> None:
    draw.policy["max_models"] = draw.random.choice((1, 2))
    draw.work.gpus = draw.random.choice(((24,), (24, 24)))


def _bounds(draw: _Draw) -> None:
    draw.policy["queue_bound"] = draw.random.choice((0, 1, 2, 5))
    draw.gap = draw.random.choice((100 * MS, S))


def _explicit_partial(draw: _Draw) -> None:
    draw.options = (LoadOptions(), LoadOptions(num_gpu=8), LoadOptions(num_gpu=0), LoadOptions(num_gpu=99))
    draw.work.ram = 64


def _bursts(draw: _Draw) -> None:
    draw.gap = MS
    draw.policy["queue_bound"] = draw.random.choice((10, 512))
    draw.policy["finish_abandoned_load"] = draw.random.random() < 0.5


def _trouble(draw: _Draw) -> None:
    random, work = draw.random, draw.work
    work.gpus = random.choice(((24,), (24, 24), (24, 16, 12)))
    draw.small_and_big(small=4)
    work.overhead = random.choice((0, 1))
    work.integrated = random.random() < 0.2
    draw.options = (LoadOptions(), LoadOptions(), LoadOptions(num_ctx=8192, num_ctx_auto=False))
    draw.policy["finish_abandoned_load"] = random.random() < 0.3
    draw.policy["prompt_cache"] = random.choice((0, GIB))
    draw.add_faults()


KINDS: Final[dict[str, Callable[[_Draw], None]]] = {
    "hot and big": _hot_and_big,
    "ping-pong": _ping_pong,
    "options": _options,
    "smalls and big": _smalls_and_big,
    "pinned": _pinned,
    "several devices": _several_devices,
    "wide": _wide,
    "never fits": _never_fits,
    "cancels": _cancels,
    "stops": _stops,
    "cpu only": _cpu_only,
    "few": _few,
    "bounds": _bounds,
    "explicit partial": _explicit_partial,
    "bursts": _bursts,
    "trouble": _trouble,
}


def workload(seed: int) -> Workload:
    """The workload of a seed; kinds take turns."""
    kind = list(KINDS)[seed % len(KINDS)]
    draw = _Draw(kind, seed)
    KINDS[kind](draw)
    return draw.finish()
