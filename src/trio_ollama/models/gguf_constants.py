"""The `gguf` package's constants, without the rest of the package.

`import gguf` also imports its reader, writer and numpy: 17 MiB of memory and 0.2 s that an idle daemon has no use for
(measured; the constants alone: 0.5 MiB, 16 ms). So the one file that holds the format's numbers is loaded by itself,
under a name of our own, which leaves a real `import gguf` elsewhere undisturbed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

__all__ = ["GGML_QUANT_SIZES", "GGUF_DEFAULT_ALIGNMENT", "GGMLQuantizationType", "GGUFValueType", "LlamaFileType"]


def _load() -> ModuleType:
    package = importlib.util.find_spec("gguf")
    for folder in (package and package.submodule_search_locations) or ():
        name = f"{__name__}_upstream"
        spec = importlib.util.spec_from_file_location(name, Path(folder, "constants.py"))
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            return module
    raise ImportError("the package gguf is not installed")


if TYPE_CHECKING:
    from gguf.constants import (
        GGML_QUANT_SIZES,
        GGUF_DEFAULT_ALIGNMENT,
        GGMLQuantizationType,
        GGUFValueType,
        LlamaFileType,
    )
else:
    _constants: Final = _load()
    GGML_QUANT_SIZES = _constants.GGML_QUANT_SIZES
    GGUF_DEFAULT_ALIGNMENT = _constants.GGUF_DEFAULT_ALIGNMENT
    GGMLQuantizationType = _constants.GGMLQuantizationType
    GGUFValueType = _constants.GGUFValueType
    LlamaFileType = _constants.LlamaFileType
