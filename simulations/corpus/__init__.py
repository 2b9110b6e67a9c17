"""Known races and faults, one scenario each: `CASES`, by entry, and where the others are tested: `NOT_HERE`."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Final

from .case import Case, Known

__all__ = ["CASES", "NOT_HERE", "Case", "Known"]


def _modules() -> Iterator[ModuleType]:
    for module in iter_modules(__path__):
        yield import_module(f"{__name__}.{module.name}")


def _collect() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for module in _modules():
        for case in getattr(module, "CASES", ()):
            assert case.entry not in found, f"{case.entry} is there twice"
            found[case.entry] = case
    return dict(sorted(found.items()))


CASES: Final = _collect()
NOT_HERE: Final = dict(sorted(item for module in _modules() for item in getattr(module, "NOT_HERE", {}).items()))
