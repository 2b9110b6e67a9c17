"""One fault as data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

__all__ = ["Mutant", "UnfitMutantError"]


class UnfitMutantError(ValueError):
    """The text that a mutant changes is not there, or more than once: the source has moved on."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    module: str
    """Full name of the module that is changed."""
    old: str
    """Occurs exactly once in its source."""
    new: str
    mistake: str
    """What somebody did wrong, in words."""
    survives: str = ""
    """Why nobody can notice it; empty if the simulation has to."""

    @cached_property
    def path(self) -> Path:
        """Of the module; found without importing anything but its packages' parents."""
        top, *rest = self.module.split(".")
        spec = find_spec(top)
        places = [] if spec is None else spec.submodule_search_locations or []
        return Path(places[0]).joinpath(*rest).with_suffix(".py")

    def source(self) -> str:
        """The module's source with the fault in it. Raises `UnfitMutantError`."""
        source = self.path.read_text(encoding="utf-8")
        found = source.count(self.old)
        if found != 1:
            raise UnfitMutantError(f"{self.name}: its text is {found} times in {self.module}")
        return source.replace(self.old, self.new)
