"""When is a process ready for a signal?"""

from __future__ import annotations

import select
from pathlib import Path

__all__ = ["wait_until_asleep"]


def wait_until_asleep(pid: int) -> None:
    """Return when the process waits for something (for at most 10 s).

    A signal that comes between a program's last look for signals and the system call in which it waits is seen only
    after that call. No person is that fast, but a test is.
    """
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(1000):
        if stat.read_text().rpartition(")")[2].split()[0] == "S":
            return
        select.select([], [], [], 0.01)
