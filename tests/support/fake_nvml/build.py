"""Makes the library out of `nvml.c`, where there is a C compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["LIBRARY", "NO_COMPILER", "build", "compiler"]

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
"""The name under which NVIDIA's binding looks for it."""

NO_COMPILER = "needs a C compiler (cc or gcc) for the simulated GPUs, and there is none"
"""Why tests are skipped."""


def compiler() -> str | None:
    """Path of a C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """Compile the library into `folder`, which goes into LD_LIBRARY_PATH, and return that. Warnings are errors."""
    found = compiler()
    assert found is not None, NO_COMPILER
    command = [found, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    made = subprocess.run(
        [*command, "-o", str(folder / LIBRARY), str(SOURCE), "-lpthread"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    return folder
