"""What several scenarios are made of: sizes, durations in seconds, and how long trouble lasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simulations.scenarios import Fault, What
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy

__all__ = ["EXIT", "FOR_EVER", "LOAD", "ONE_AT_A_TIME", "OUT_OF_MEMORY", "TWO_SLOTS", "trouble_until"]

ONE_AT_A_TIME: Final[Mapping[str, float]] = {"x": 14.0, "b": 14.0}
"""Neither fits beside the other on 24 GiB."""
LOAD: Final = Behaviour().load_time
EXIT: Final = Behaviour().term_time or 0.0
"""Between the signal and the end of a process."""
FOR_EVER: Final = -1.0
"""As a keep-alive."""
TWO_SLOTS: Final = Policy(num_parallel=2)
OUT_OF_MEMORY: Final = ("cudaMalloc failed: out of memory",)
"""The last lines of a child that says so."""


def trouble_until(at: float) -> Fault:
    """Nothing heals before that: a fault that does nothing."""
    return Fault(at=at, what=What.LAG, amount=0)
