"""The menu of faults (races.md, section 15): what a process, a driver or a person can do at the wrong moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from simulations.world.behaviour import Behaviour

from .scenario import Fault, What

__all__ = ["DEVICE_FAULTS", "ENDS", "MEMORY", "PROCESS_FAULTS", "STUBBORN", "timed"]

NO_MEMORY: Final = "CUDA error: out of memory"
TAKEN: Final = "couldn't bind HTTP server socket, hostname: 127.0.0.1"
"""What a process says whose port somebody else has; it exits, so that no foreign answer is taken for its own (R82)."""

Spoil = Callable[[Random, Behaviour], Behaviour]
"""A behaviour like another one but for one fault."""


def _with(**changes: object) -> Spoil:
    return lambda random, usual: replace(usual, **changes)  # type: ignore[arg-type]


PROCESS_FAULTS: Final[Mapping[str, Spoil]] = {
    # exits at every phase
    "cannot start": _with(spawn_error="simulated spawn error"),
    "dies at its start": _with(dies_loading=0.0),
    "finds its port taken": _with(dies_loading=0.0, exit_lines=(TAKEN,)),
    "dies loading": _with(dies_loading=0.5),
    "refuses to load": _with(refuses_to_load="error loading model: simulated"),
    "dies idle": lambda random, usual: replace(usual, dies_idle=random.expovariate(1 / 3)),
    "dies while it works": lambda random, usual: replace(usual, dies_after_tokens=random.randint(1, 6)),
    "refuses calls": _with(refuses_calls="simulated"),
    # memory
    "has no memory": _with(refuses_to_load=NO_MEMORY),
    "dies for want of memory": _with(dies_loading=0.5, exit_lines=(NO_MEMORY,)),
    "has no memory for calls": _with(refuses_calls=NO_MEMORY),
    "takes more than was predicted": lambda random, usual: replace(usual, surplus=random.choice((1.0, 4.0, 16.0))),
    # hangs and slowness
    "stalls": _with(stalls_loading=0.5),
    "loads slowly": lambda random, usual: replace(usual, load_time=random.choice((15.0, 40.0))),
    "hangs": _with(hangs=True),
    "ends slowly": lambda random, usual: replace(usual, term_time=random.choice((1.5, 4.0))),
    "ignores SIGTERM": _with(term_time=None),
    "cannot be killed": _with(term_time=None, kill_time=None),
    "takes long to be killed": _with(term_time=None, kill_time=7.0),
    "keeps slots": lambda random, usual: replace(usual, settle_time=random.choice((1.0, 3.0, None))),
    # faults of ours
    "spawn raises": _with(spawn_raises=ValueError("simulated")),
    "ready raises": _with(ready_raises=ValueError("simulated")),
    "serve raises": _with(serve_raises=ValueError("simulated")),
}
"""By name: what the first launches of a model may do wrong."""

MEMORY: Final = (
    "has no memory",
    "dies for want of memory",
    "has no memory for calls",
    "takes more than was predicted",
)
STUBBORN: Final = (
    "stalls",
    "loads slowly",
    "hangs",
    "ends slowly",
    "ignores SIGTERM",
    "cannot be killed",
    "takes long to be killed",
    "keeps slots",
)

DEVICE_FAULTS: Final = (
    What.FOREIGN,
    What.LAG,
    What.QUERY_TIME,
    What.READS_FIRST,
    What.QUERIES_FAIL,
    What.QUERIES_RAISE,
    What.VANISH,
    What.NO_FIGURES,
    What.MEMORY_FAILS,
)
ENDS: Final = (What.CLOSE, What.END)

_AMOUNTS: Final[Mapping[What, Sequence[float]]] = {
    What.FOREIGN: (2, 6, 20),
    What.LAG: (0.3, 1, 3, 8),
    What.QUERY_TIME: (0.05, 0.5, 2, 10),
}
"""What `amount` may be; 1 for all others."""
_PASSING: Final = frozenset({*DEVICE_FAULTS} - {What.FOREIGN})
"""They end with amount 0."""


def timed(random: Random, what: What, most: int, span: float, models: Sequence[str], gpus: int) -> Iterator[Fault]:
    """Up to `most` faults of a kind within `span` seconds; what lasts ends after a while, or is left to heal."""
    for _ in range(random.randint(min(1, most), most)):
        at = random.uniform(0, span)
        target = ""
        if what in (What.FOREIGN, What.VANISH):
            if not gpus:
                return
            target = f"GPU-{random.randrange(gpus)}"
        elif what is What.LAG and gpus > 1 and random.random() < 0.5:
            target = f"GPU-{random.randrange(gpus)}"
        elif what in (What.STOP, What.FORCE, What.CRASH, What.HANG):
            target = random.choice(models)
        fault = Fault(at=at, what=what, target=target, amount=random.choice(_AMOUNTS.get(what, (1.0,))))
        yield fault
        if random.random() < 0.5:
            later = at + random.expovariate(4 / span) if span else at
            if what in _PASSING:
                yield replace(fault, at=later, amount=0.0)
            elif what is What.FOREIGN:
                yield replace(fault, at=later, amount=-fault.amount)
