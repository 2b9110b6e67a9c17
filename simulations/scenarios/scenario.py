"""A scenario: a machine, its models, the requests to it and what goes wrong, as plain data.

Everything is fixed before the run, so that a scenario can be drawn from a seed, written by hand, made smaller field by
field, and played on more than one scheduler. Sizes in GiB, instants and durations in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import chain
from typing import Any

from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Limits, Policy

__all__ = ["Fault", "Request", "Scenario", "What", "spell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One client with one request."""

    model: str = "a"
    at: float = 0.0
    leaves: float | None = None
    """The instant at which it disconnects, whatever is going on."""
    late: int = 0
    """It does so that many turns of the loop later, when some of what happens in that instant has happened (R05)."""
    tokens: int = 3
    """It streams that many; 0: no generation."""
    inputs: int = 0
    """It embeds that many texts, under one lease, with a slot for each."""
    pause: float = 0.0
    """It takes that long to read each token."""
    hold: float = 0.0
    """It keeps its lease for so long after all else."""
    keep_alive: float | None = None
    """Negative: for ever. None: it does not say."""
    num_ctx: int | None = None
    num_gpu: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """More of what a load depends on: fields of `LoadOptions` by name, which settle what those two did (R58)."""
    slot: bool = True
    """False: it only loads, or embeds."""


class What(StrEnum):
    STOP = "stop"
    """Somebody stops the model `target`, or deletes it."""
    FORCE = "force"
    """Somebody ends the model `target` at once, whoever uses it or waits for its load."""
    CRASH = "crash"
    """The newest process of the model `target` ends by itself."""
    HANG = "hang"
    """The newest process of the model `target` answers nothing from now on; amount 0: it does again."""
    FOREIGN = "foreign"
    """Another program takes `amount` GiB of device `target`; negative: gives back."""
    LAG = "lag"
    """Reports of free memory, of device `target` or of all, are `amount` seconds old from now on (R35, R37)."""
    QUERY_TIME = "query time"
    """A look at the GPUs takes `amount` seconds from now on."""
    READS_FIRST = "reads first"
    """A slow look shows what was the case when it began (R65); amount 0: when it answers."""
    QUERIES_FAIL = "queries fail"
    """Looks at the GPUs find nothing out from now on (I19); amount 0: they do again."""
    QUERIES_RAISE = "queries raise"
    """Looks at the GPUs raise what the contract does not know; amount 0: no more."""
    VANISH = "vanish"
    """Device `target` is in no report from now on (R65); amount 0: it is back."""
    NO_FIGURES = "no figures"
    """Reports name the GPUs, but not what is free on them (I19); amount 0: they do again."""
    MEMORY_FAILS = "memory fails"
    """Looks at the system's memory find nothing out (I19); amount 0: they do again."""
    OUT_OF_MEMORY = "out of memory"
    """A call finds that the device has no memory left (R51)."""
    CLOSE = "close"
    """The server takes no more requests, and lets those that it has finish (R68)."""
    END = "end"
    """The server ends, whatever is going on (R67)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    at: float
    what: What
    target: str = ""
    amount: float = 1.0
    stepwise: bool = False
    """Not at that instant, but at that step of any task from then on which has the number of the interleaving: many
    interleavings try all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str = ""
    gpus: tuple[float, ...] = (24,)
    """Called GPU-0, GPU-1, ..."""
    ram: float = 64
    integrated: bool = False
    """The GPUs are parts of the processor: what is on them is in RAM (R64)."""
    overhead: float = 0
    """Kept free on each GPU."""
    models: Mapping[str, float] = field(default_factory=dict)
    """Sizes; 4 for those that are not named."""
    usual: Behaviour = field(default_factory=Behaviour)
    launches: Mapping[str, tuple[Behaviour, ...]] = field(default_factory=dict)
    """The first launches of a model behave so, all others as usual."""
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    requests: tuple[Request, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def last(self) -> float:
        """The instant after which nothing new comes from outside."""
        left = (request.leaves for request in self.requests if request.leaves is not None)
        return max(
            chain((request.at for request in self.requests), left, (fault.at for fault in self.faults)), default=0
        )


def spell(value: Any) -> str:
    """Python for a value, without the fields that are as they always are."""
    if isinstance(value, StrEnum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return "(" + "".join(spell(item) + ", " for item in value).rstrip(" ") + ")"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {spell(item)}" for key, item in value.items()) + "}"
    if not hasattr(value, "__dataclass_fields__"):
        return repr(value)
    usual = type(value)(**{"at": None, "what": None} if isinstance(value, Fault) else {})
    told = ", ".join(
        f"{item.name}={spell(getattr(value, item.name))}"
        for item in fields(value)
        if getattr(value, item.name) != getattr(usual, item.name)
    )
    return f"{type(value).__name__}({told})"
