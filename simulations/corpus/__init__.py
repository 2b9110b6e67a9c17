"""Known races and faults, one scenario each: `CASES`, by entry."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from .case import Case, Known

__all__ = ["CASES", "Case", "Known"]


def _collect() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for module in iter_modules(__path__):
        for case in getattr(import_module(f"{__name__}.{module.name}"), "CASES", ()):
            assert case.entry not in found, f"{case.entry} is there twice"
            found[case.entry] = case
    return dict(sorted(found.items()))


CASES: Final = _collect()
