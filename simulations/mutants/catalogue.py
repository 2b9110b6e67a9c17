"""All mutants, by name.

Faults that nobody could ever see are none: wherever the scheduler is safe twice, either of the two can go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from . import on_capacity, on_fleet, on_leases, on_plan, on_shell, on_supervisor
from .mutant import Mutant

__all__ = ["MUTANTS"]

_ALL: Final = tuple(
    mutant for theme in (on_shell, on_supervisor, on_leases, on_fleet, on_plan, on_capacity) for mutant in theme.MUTANTS
)
_TWICE: Final = [name for name, count in Counter(mutant.name for mutant in _ALL).items() if count > 1]
assert not _TWICE, f"{_TWICE} are there twice"

MUTANTS: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in _ALL}
