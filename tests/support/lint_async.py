"""flake8-async on the files with anything asynchronous in them: each takes half a second, and most have nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ASYNCHRONOUS: Final = re.compile(
    r"\basync (def|with|for)\b|\bawait\b|\bopen_nursery\b|\bCancelScope\b|\bmove_on_after\b"
)
OPTIONS: Final = (
    "--select=ASYNC",
    # 910, 911 and 124 forbid async functions without a checkpoint on some path: a cancel-safe grant is made of that.
    "--ignore=ASYNC124,ASYNC910,ASYNC911",
    "--startable-in-context-manager=run,serve,watch_signals",
)


def main() -> int:
    files = [
        str(path.relative_to(ROOT))
        for folder in ("src", "tests", "simulations")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if ASYNCHRONOUS.search(path.read_text(encoding="utf-8"))
    ]
    print(f"flake8-async: {len(files)} files")
    return subprocess.run([sys.executable, "-m", "flake8", *OPTIONS, *files], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
