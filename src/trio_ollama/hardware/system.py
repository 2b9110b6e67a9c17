"""System memory as this process may use it: what the machine has, cut to the limits of our control groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
            total, free, swap_free, limited_by = machine.total, machine.free, machine.swap_free, ""
            for limit in self._limits():
                if limit.bytes < total:
                    total, limited_by = limit.bytes, limit.group
                free = min(free, limit.left)
                swap_free = min(swap_free, limit.swap_left)
        except (OSError, ValueError, psutil.Error):
            return None
        return MemoryReport(total, max(0, min(free, total)), swap_free, limited_by)

    def _limits(self) -> Iterator[Limit]:
        """Of each limited control group that we are in, ours and all above it."""
        lines = _read(self._proc / "self" / "cgroup") or ""  # no such file: not Linux, no limits
        for line in lines.splitlines():
            hierarchy, controllers, path = line.split(":", 2)
            if hierarchy == "0" and not controllers:
                yield from _walk(self._cgroups, path, _version_2)
            elif "memory" in controllers.split(","):
                yield from _walk(self._cgroups / "memory", path, _version_1)


@dataclass(frozen=True, slots=True)
class Limit:
    """Of one control group. Sizes in bytes."""

    group: str
    bytes: int
    left: int
    swap_left: int = _UNLIMITED


def _walk(root: Path, path: str, read_limit: Callable[[Path, str], Limit | None]) -> Iterator[Limit]:
    # In a container the path may be the host's, and only the root of the mount is ours: folders that are not there
    # have no files and hence no limit, but the root is always asked.
    folder = root.joinpath(*(part for part in PurePosixPath(path).parts if part not in ("/", "..")))
    while True:
        limit = read_limit(folder, f"/{folder.relative_to(root)}" if folder != root else "/")
        if limit is not None:
            yield limit
        if folder == root:
            return
        folder = folder.parent


def _version_2(folder: Path, group: str) -> Limit | None:
    # Above `high` the kernel slows its processes down until they give memory back: no model may be loaded into that.
    limits = [
        int(text) for name in ("memory.max", "memory.high") if (text := _read(folder / name)) and not _is_max(text)
    ]
    swap, swap_left = _read(folder / "memory.swap.max"), _UNLIMITED
    if swap is not None and not _is_max(swap):
        swap_left = max(0, int(swap) - int(_read(folder / "memory.swap.current") or 0))
    if not limits:
        return None if swap_left == _UNLIMITED else Limit(group, _UNLIMITED, _UNLIMITED, swap_left)
    limit = min(limits)
    return Limit(group, limit, _left(folder, limit, "memory.current", ("inactive_file",)), swap_left)


def _version_1(folder: Path, group: str) -> Limit | None:
    limit = _read(folder / "memory.limit_in_bytes")
    if limit is None or int(limit) >= _UNLIMITED:
        return None
    left = _left(folder, int(limit), "memory.usage_in_bytes", ("total_inactive_file", "inactive_file"))
    return Limit(group, int(limit), left)


def _is_max(text: str) -> bool:
    return text.strip() == "max"


def _left(folder: Path, limit: int, usage_name: str, cache_names: tuple[str, ...]) -> int:
    """What is left below the limit; page cache that can be dropped at once does not count as used.

    Mapped models live in that cache: counting it would make memory look full after the first load.
    """
    usage = int((folder / usage_name).read_text(encoding="ascii"))
    statistics = dict(line.split(None, 1) for line in (_read(folder / "memory.stat") or "").splitlines() if " " in line)
    cache = next((int(statistics[name]) for name in cache_names if name in statistics), 0)
    return max(0, limit - max(0, usage - cache))


def _read(path: Path) -> str | None:
    """The file's text; None if there is no such file. Other errors (OSError, ValueError) are the caller's."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")  # names of groups may be anything
    except (FileNotFoundError, NotADirectoryError):
        return None
