"""The bounds on every wait of the scheduler, in seconds. Each has a variable of its own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    stop_grace: float = 2.0
    """G: between SIGTERM and SIGKILL."""
    kill_wait: float = 5.0
    """K: after SIGKILL; then the runner counts as stuck (R71)."""
    load_stall: float = 300.0
    """L: a load without a sign of life (R83)."""
    abort_confirm: float = 10.0
    """C: a slot still busy after its request left; then the runner is recycled (R08)."""
    drain_progress: float = 300.0
    """D: a drain in which no request gets a token (R81)."""
    recovery: float = 5.0
    """V: for memory to come back after an exit."""
    recovery_poll: float = 0.25
    query: float = 3.0
    """For one look at the hardware; then the last good figures are used (R65)."""
