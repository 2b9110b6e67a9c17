"""How much memory a child has, as the kernel counts."""

from __future__ import annotations

import contextlib

import psutil

__all__ = ["resident"]


def resident(pid: int) -> tuple[int, int] | None:
    """(resident, private) bytes of a process and its children; None if it is gone or the kernel does not say.

    Private is what belongs to no file and is shared with nobody. Blocking, for milliseconds.
    """
    total = private = 0
    try:
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            # A child that ends while it is looked at has nothing.
            with contextlib.suppress(psutil.NoSuchProcess) if each is not process else contextlib.nullcontext():
                memory = each.memory_info()
                total += memory.rss
                private += max(0, memory.rss - getattr(memory, "shared", 0))
    except psutil.Error:
        return None
    return total, private
