"""Plant a fault in this process, and run a module with it: `python -m simulations.mutants.plant NAME MODULE [ARG ...]`.

No file is changed: when the module is imported, it is compiled from a source that has the fault in it.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from .catalogue import MUTANTS
from .mutant import Mutant

__all__ = ["command", "plant"]


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Past the cache of compiled modules, in both directions."""
        return compile(self._mutant.source(), str(self._mutant.path), "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        return spec_from_file_location(fullname, self._mutant.path, loader=_Loader(self._mutant))


def plant(mutant: Mutant) -> None:
    """Let the mutant's module be imported with the fault in it. Raises `UnfitMutantError` if it does not fit."""
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} has been imported already, without the fault")
    mutant.source()
    sys.meta_path.insert(0, _Finder(mutant))


def command(mutant: str, module: str, *arguments: str) -> list[str]:
    """Runs a module in a process of its own, with a mutant planted."""
    return [sys.executable, "-m", "simulations.mutants.plant", mutant, module, *arguments]


if __name__ == "__main__":
    name, module, *arguments = sys.argv[1:]
    plant(MUTANTS[name])
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
