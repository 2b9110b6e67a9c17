"""How a scenario is drawn from a number.

Everything is drawn before the run, and each actor (the machine, every client, every process, every fault) has its own
`Random`, so that nothing drawn depends on what a scheduler does, and one more client leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Limits, Policy

from .scenario import Fault, Request, Scenario, What
from .troubles import PROCESS_FAULTS, timed

__all__ = ["CLIENTS", "Draw"]

CLIENTS: Final = 20
KEEP_ALIVES: Final = (None, None, None, 0.0, 0.001, 5.0, 300.0, -1.0)


class Draw:
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
