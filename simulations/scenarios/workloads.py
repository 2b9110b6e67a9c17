"""Random scenarios of many kinds: a machine, a policy, models, requests and what goes wrong, all from one number.

Everything is drawn before the run, and each actor (the machine, every client, every process, every fault) has its own
`Random`, so that nothing drawn depends on what a scheduler does, and one more client leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Limits, Policy
from trio_ollama.scheduler.core.values import FOREVER

from .scenario import Fault, Request, Scenario, What
from .troubles import DEVICE_FAULTS, ENDS, MEMORY, PROCESS_FAULTS, STUBBORN, timed

__all__ = ["CLIENTS", "KINDS", "draw"]

CLIENTS: Final = 20
KEEP_ALIVES: Final = (None, None, None, 0.0, 0.001, 5.0, 300.0, -1.0)
QUICK: Final = Limits(load_stall=20, drain_progress=15, abort_confirm=4)
"""Bounds within which a workload sees the end of a hang."""


class _Draw:
    """Draws one scenario. A kind changes what makes it special; the rest is common."""

    def __init__(self, seed: int, kind: str) -> None:
        self.seed, self.kind = seed, kind
        random = self.random = self.actor("machine")
        self.gpus: tuple[float, ...] = (24,)
        self.ram = 64.0
        self.overhead = 0.0
        self.models: dict[str, float] = {}
        self.weights: Sequence[float] | None = None
        self.policy: dict[str, Any] = {
            "num_parallel": random.choice((1, 1, 2, 4)),
            "overtakes": random.choice((0, 1, 4, 4)),
            "finish_abandoned_load": random.random() < 0.2,
        }
        self.limits = Limits()
        self.usual = Behaviour(
            load_time=random.choice((0.5, 2.0, 8.0)),
            prompt_time=random.choice((0.02, 0.3)),
            token_time=random.choice((0.01, 0.2)),
            term_time=random.choice((0.05, 1.0)),
            settle_time=random.choice((0.0, 0.0, 0.4)),
        )
        self.gap = random.choice((0.02, 0.2, 1.0, 3.0))
        """Between two arrivals, on average."""
        self.together = 0.1
        """Part of the requests that come in the same instant as the one before."""
        self.leave = random.choice((0.0, 0.05, 0.2))
        """Part of the clients that leave, if they are not done by then."""
        self.patience = 2.0
        """After how long those leave, on average."""
        self.longest = random.choice((2, 2, 4, 8))
        """Tokens."""
        self.contexts: Sequence[int | None] = (None,)
        self.automatic: Sequence[int] = (4096,)
        """Contexts where nobody asked for one."""
        self.layers: Sequence[int | None] = (None,)
        self.keep_alives: Sequence[float | None] = KEEP_ALIVES
        self.batches = 0.05
        """Part of the requests that embed several texts."""
        self.slow = 0.05
        """Part of the clients that read slowly."""
        self.grid = 0.0
        """All instants are multiples of that, so that many are equal."""
        self.bad: Sequence[str] = ()
        """What processes do wrong: names in `PROCESS_FAULTS`."""
        self.bad_launches = 0.5
        """Part of the first launches of each model that go wrong, if any do."""
        self.faults: list[tuple[What, int]] = []
        """What happens at some time, and how often at most."""
        self.look = 0.0
        """How long a look at the machine takes."""

    def actor(self, name: str) -> Random:
        return Random(f"workload {self.seed} {name}")

    @property
    def span(self) -> float:
        return CLIENTS * self.gap

    def small_and_big(self, small: int = 3) -> None:
        gpu = min(self.gpus, default=self.ram)
        sizes = [self.random.choice((0.08, 0.12, 0.2, 0.3)) * gpu for _ in range(small)]
        sizes.append(self.random.choice((0.5, 0.6, 0.75)) * gpu)
        self.models = {f"m{number}": round(size, 2) for number, size in enumerate(sizes)}

    def scenario(self) -> Scenario:
        if not self.models:
            self.small_and_big()
        return Scenario(
            name=f"{self.kind} {self.seed}",
            gpus=self.gpus,
            ram=self.ram,
            overhead=self.overhead,
            models=self.models,
            usual=self.usual,
            launches={model: launches for model in self.models if (launches := self.launches(model))},
            policy=Policy(**self.policy),
            limits=self.limits,
            requests=tuple(self.requests()),
            faults=tuple(self.timed_faults()),
        )

    def launches(self, model: str) -> tuple[Behaviour, ...]:
        """How the first launches of a model behave."""
        if not self.bad:
            return ()
        random = self.actor(f"processes of {model}")
        return tuple(
            PROCESS_FAULTS[random.choice(self.bad)](random, self.usual)
            if random.random() < self.bad_launches
            else self.usual
            for _ in range(random.randint(1, 4))
        )

    def requests(self) -> list[Request]:
        found: list[Request] = []
        arrivals, at = self.actor("arrivals"), 0.0
        for number in range(CLIENTS):
            if arrivals.random() >= self.together:
                at = self.instant(at + arrivals.expovariate(1 / self.gap))
            found.append(self.request(self.actor(f"client {number}"), at))
        return found

    def request(self, random: Random, at: float) -> Request:
        (model,) = random.choices(list(self.models), self.weights)
        kind = random.random()
        batch, only_loads = kind < self.batches, kind > 0.97
        leaves = at + random.choice((0.0, *[random.expovariate(1 / self.patience) for _ in range(5)]))
        late = random.choice((0, 0, 0, 1, 2, 4))
        automatic, context = random.choice(self.automatic), random.choice(self.contexts)
        leaving = random.random() < self.leave
        return Request(
            model=model,
            at=at,
            leaves=self.instant(leaves) if leaving else None,
            late=late if leaving else 0,
            tokens=0 if batch or only_loads else random.randint(1, self.longest),
            inputs=random.randint(1, 5) if batch else 0,
            pause=random.choice((0.5, 2.0)) if random.random() < self.slow else 0.0,
            hold=random.choice((0.0, 0.0, 0.0, 1.0)),
            keep_alive=random.choice(self.keep_alives),
            num_ctx=context,
            num_gpu=random.choice(self.layers),
            options={"num_ctx": automatic} if context is None and automatic != 4096 else {},
            slot=not batch and not only_loads,
        )

    def timed_faults(self) -> list[Fault]:
        slow = [Fault(at=0, what=What.QUERY_TIME, amount=self.look)] if self.look else []
        return slow + [
            replace(fault, at=self.instant(fault.at))
            for number, (what, most) in enumerate(self.faults)
            for fault in timed(self.actor(f"fault {number}"), what, most, self.span, list(self.models), len(self.gpus))
        ]

    def instant(self, at: float) -> float:
        return round(round(at / self.grid) * self.grid, 6) if self.grid else round(at, 6)


def _hot_and_big(draw: _Draw) -> None:
    draw.models = {"hot": 6, "big": 16}
    draw.weights = (9, 1)
    draw.gap = 0.2


def _ping_pong(draw: _Draw) -> None:
    draw.models = {"a": 14, "b": 14}
    draw.gap = draw.random.choice((0.1, 1.0))


def _options(draw: _Draw) -> None:
    draw.models = {"a": 6, "b": 10}
    draw.contexts = draw.random.choice(((2048, 8192), (None, 65536, 2048)))
    draw.leave = 0.3


def _partial(draw: _Draw) -> None:
    draw.models = {"a": 6, "b": 14, "partial": 30}
    draw.layers = (None, 8, 0, 99)


def _smalls_and_big(draw: _Draw) -> None:
    draw.small_and_big(small=8)
    draw.gap = 0.3


def _several_devices(draw: _Draw) -> None:
    draw.gpus = draw.random.choice(((24, 24), (24, 12), (24, 24, 24), (48, 8)))
    draw.small_and_big(small=5)
    draw.gap = draw.random.choice((0.02, 0.3, 1.0))


def _wide(draw: _Draw) -> None:
    draw.gpus = draw.random.choice(((24, 24), (24, 16, 24)))
    draw.models = {"s": 3, "t": 8, "u": 12, "wide": 30, "partial": 60}
    draw.weights = (4, 3, 2, 2, 1)
    draw.policy["spread"] = draw.random.random() < 0.3


def _never_fits(draw: _Draw) -> None:
    draw.ram = 32
    draw.overhead = draw.random.choice((0, 2, 30))
    draw.models = {"a": 8, "b": 15, "partial": 30, "huge": 300}


def _cpu_only(draw: _Draw) -> None:
    draw.gpus = ()
    draw.ram = 32
    draw.models = {"a": 8, "b": 16, "c": 20, "d": 2}


def _few(draw: _Draw) -> None:
    draw.policy["max_models"] = draw.random.choice((1, 2))
    draw.gpus = draw.random.choice(((24,), (24, 24)))


def _bounds(draw: _Draw) -> None:
    draw.policy["queue_bound"] = draw.random.choice((0, 1, 2))
    draw.gap = draw.random.choice((0.05, 0.5))


def _cancels(draw: _Draw) -> None:
    draw.leave = 0.8
    draw.gap = draw.random.choice((0.05, 0.5))


def _stops(draw: _Draw) -> None:
    draw.faults += [(What.STOP, 12), (What.CRASH, 2)]
    draw.slow = draw.leave = 0.4


def _bursts(draw: _Draw) -> None:
    draw.together = 0.8
    draw.leave = 0.3
    draw.policy["queue_bound"] = draw.random.choice((2, 512))


def _batches(draw: _Draw) -> None:
    draw.batches = 0.6
    draw.leave = 0.3
    draw.gap = 0.2
    draw.models = {"a": 6, "b": 14}


def _slow_readers(draw: _Draw) -> None:
    draw.slow = 0.6
    draw.leave = 0.3
    draw.models = {"a": 14, "b": 14, "c": 4}


def _equal_instants(draw: _Draw) -> None:
    draw.grid = draw.random.choice((0.5, 1.0, 5.0))
    draw.usual = replace(draw.usual, load_time=draw.random.choice((draw.grid, 2 * draw.grid)))
    draw.keep_alives = (0.0, draw.grid, 2 * draw.grid, 5.0)
    draw.look = draw.random.choice((0.0, 0.0, draw.grid))
    draw.gap = draw.grid
    draw.leave = 0.3
    draw.faults += [(What.STOP, 3)]


def _crashes(draw: _Draw) -> None:
    draw.bad = [name for name in PROCESS_FAULTS if name not in (*MEMORY, *STUBBORN)]
    draw.limits = QUICK
    draw.faults += [(What.CRASH, 3)]


def _crash_loop(draw: _Draw) -> None:
    draw.models = {"bad": 6, "good": 10}
    draw.bad = ("dies while it works", "dies idle", "dies loading")
    draw.bad_launches = 0.9
    draw.faults += [(What.CRASH, 6)]


def _memory(draw: _Draw) -> None:
    draw.bad = MEMORY
    draw.contexts = draw.random.choice(((None,), (None, 65536, 2048)))
    draw.automatic = draw.random.choice(((4096,), (32768, 262144)))
    draw.slow, draw.leave, draw.patience = 0.4, 0.6, draw.random.choice((1.0, 3.0))
    draw.gap = draw.random.choice((0.1, 0.5))
    draw.faults += [(What.OUT_OF_MEMORY, 2), (What.FOREIGN, 3)]


def _stubborn(draw: _Draw) -> None:
    draw.bad = draw.random.choice((STUBBORN, STUBBORN, ("keeps slots", "hangs")))
    draw.limits = draw.random.choice((QUICK, Limits()))
    draw.usual = replace(draw.usual, prompt_time=0.3, token_time=0.4, load_time=draw.random.choice((0.5, 2.0)))
    draw.longest = 8
    draw.gap = draw.random.choice((1.0, 3.0))
    draw.leave, draw.patience = 0.6, 4.0
    draw.faults += [(What.STOP, 3), (What.HANG, 2)]


def _reports(draw: _Draw) -> None:
    draw.gpus = draw.random.choice(((24,), (24, 24), (24, 16, 12)))
    draw.gap = draw.random.choice((0.3, 1.0, 3.0))
    draw.leave = 0.3
    draw.overhead = draw.random.choice((0, 1))
    draw.look = draw.random.choice((0.0, 0.3, 2.0))
    draw.faults += [(what, 2) for what in DEVICE_FAULTS]


def _shutdown(draw: _Draw) -> None:
    draw.gap = draw.random.choice((0.1, 0.5, 2.0))
    if draw.random.random() < 0.6:
        draw.models = {"a": 14, "b": 14, "c": 4}
    draw.slow = draw.random.choice((0.05, 0.5))
    draw.faults += [(draw.random.choice(ENDS), 1)]
    if draw.random.random() < 0.5:
        draw.bad = list(PROCESS_FAULTS)
        draw.limits = QUICK
    if draw.random.random() < 0.3:
        draw.faults += [(What.LAG, 1)]


def _trouble(draw: _Draw) -> None:
    """Everything that can go wrong with processes, drivers and people, all at once."""
    random = draw.random
    draw.gpus = random.choice(((24,), (24, 24), (24, 16, 12)))
    draw.small_and_big(small=4)
    draw.overhead = random.choice((0, 1))
    draw.contexts = (None, None, 8192)
    draw.automatic = random.choice(((4096,), (32768,)))
    draw.leave = 0.3
    draw.limits = QUICK
    draw.policy["queue_bound"] = random.choice((2, 512, 512))
    draw.policy["max_models"] = random.choice((0, 0, 2))
    draw.policy["prompt_cache"] = random.choice((0, 1 << 30))
    draw.policy["keep_alive"] = random.choice((300 * 10**9, 300 * 10**9, FOREVER))
    draw.grid = random.choice((0.0, 0.0, 0.5))
    draw.bad = list(PROCESS_FAULTS)
    draw.bad_launches = 0.4
    draw.faults += [(what, 1) for what in (*DEVICE_FAULTS, What.STOP, What.CRASH, What.HANG, What.OUT_OF_MEMORY)]
    if random.random() < 0.2:
        draw.faults += [(random.choice(ENDS), 1)]


KINDS: Final[dict[str, Callable[[_Draw], None]]] = {
    "hot and big": _hot_and_big,
    "ping-pong": _ping_pong,
    "options": _options,
    "partial": _partial,
    "smalls and big": _smalls_and_big,
    "several devices": _several_devices,
    "wide": _wide,
    "never fits": _never_fits,
    "cpu only": _cpu_only,
    "few": _few,
    "bounds": _bounds,
    "cancels": _cancels,
    "stops": _stops,
    "bursts": _bursts,
    "batches": _batches,
    "slow readers": _slow_readers,
    "equal instants": _equal_instants,
    "crashes": _crashes,
    "crash loop": _crash_loop,
    "memory": _memory,
    "stubborn": _stubborn,
    "reports": _reports,
    "shutdown": _shutdown,
    "trouble": _trouble,
}


def draw(seed: int) -> Scenario:
    """The scenario of a seed; kinds take turns."""
    kind = list(KINDS)[seed % len(KINDS)]
    drawn = _Draw(seed, kind)
    KINDS[kind](drawn)
    return drawn.scenario()
