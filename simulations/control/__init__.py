"""The control group: how a Go scheduler of this kind works, with its goroutines, channels and locks, in our world.

A scenario of a known race that does not fail here does not bite. `GO` is today's algorithm, `GO_OLD` an older one.
"""

from __future__ import annotations

from simulations.world.system import System

from .scheduler import Control, OlderControl
from .seen import leftovers, violations

__all__ = ["GO", "GO_OLD"]

GO = System("control", Control, violations, leftovers, exit=Control.power_off)
GO_OLD = System("older control", OlderControl, violations, leftovers, exit=Control.power_off)
