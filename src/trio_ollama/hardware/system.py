"""System memory as this process may use it: what the machine has, cut to the limits of our control groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import psutil

from trio_ollama.hardware.contract import MemoryReport

__all__ = ["SystemMemory", "machine_memory"]

# Version 1 writes "no limit" as the largest multiple of the page size; no real limit is an exbibyte.
_UNLIMITED = 1 << 60


def machine_memory() -> MemoryReport:
    """The whole machine's memory. Raises OSError or psutil.Error."""
    memory = psutil.virtual_memory()
    return MemoryReport(total=memory.total, free=memory.available, swap_free=psutil.swap_memory().free)


class SystemMemory:
    """Reads memory figures; synchronous, a few small files.

    `proc` and `cgroups` are the mount points of procfs and of the control groups (both versions).
    """

    def __init__(
        self,
        *,
        proc: Path = Path("/proc"),
        cgroups: Path = Path("/sys/fs/cgroup"),
        machine: Callable[[], MemoryReport] = machine_memory,
    ) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._machine = machine

    def read(self) -> MemoryReport | None:
        """Total and free bytes under every limit on our path; None if any of them could not be read (I19)."""
        try:
            machine = self._machine()
            total, free = machine.total, machine.free
            for limit, usable in self._limits():
                total = min(total, limit)
                free = min(free, usable)
        except (OSError, ValueError, psutil.Error):
            return None
        return MemoryReport(total=total, free=max(0, min(free, total)), swap_free=machine.swap_free)

    def _limits(self) -> Iterator[tuple[int, int]]:
        """(limit, bytes left below it) of each limited control group that we are in, ours and all above it."""
        lines = _read(self._proc / "self" / "cgroup") or ""  # no such file: not Linux, no limits
        for line in lines.splitlines():
            hierarchy, controllers, path = line.split(":", 2)
            if hierarchy == "0" and not controllers:
                yield from _walk(self._cgroups, path, _version_2)
            elif "memory" in controllers.split(","):
                yield from _walk(self._cgroups / "memory", path, _version_1)


def _walk(root: Path, path: str, read_limit: Callable[[Path], tuple[int, int] | None]) -> Iterator[tuple[int, int]]:
    # In a container the path may be the host's, and only the root of the mount is ours: folders that are not there
    # have no files and hence no limit, but the root is always asked.
    folder = root.joinpath(*(part for part in PurePosixPath(path).parts if part not in ("/", "..")))
    while True:
        limited = read_limit(folder)
        if limited is not None:
            yield limited
        if folder == root:
            return
        folder = folder.parent


def _version_2(folder: Path) -> tuple[int, int] | None:
    limit = _read(folder / "memory.max")
    if limit is None or limit.strip() == "max":
        return None
    return _left(folder, int(limit), "memory.current", ("inactive_file",))


def _version_1(folder: Path) -> tuple[int, int] | None:
    limit = _read(folder / "memory.limit_in_bytes")
    if limit is None or int(limit) >= _UNLIMITED:
        return None
    return _left(folder, int(limit), "memory.usage_in_bytes", ("total_inactive_file", "inactive_file"))


def _left(folder: Path, limit: int, usage_name: str, cache_names: tuple[str, ...]) -> tuple[int, int]:
    """The limit and what is left below it; page cache that can be dropped at once does not count as used.

    Mapped models live in that cache: counting it would make memory look full after the first load.
    """
    usage = int((folder / usage_name).read_text(encoding="ascii"))
    statistics = dict(line.split(None, 1) for line in (_read(folder / "memory.stat") or "").splitlines() if " " in line)
    cache = next((int(statistics[name]) for name in cache_names if name in statistics), 0)
    return limit, max(0, limit - max(0, usage - cache))


def _read(path: Path) -> str | None:
    """The file's text; None if there is no such file. Other errors (OSError, ValueError) are the caller's."""
    try:
        return path.read_text(encoding="ascii")
    except (FileNotFoundError, NotADirectoryError):
        return None
