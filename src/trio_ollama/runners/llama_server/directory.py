"""The private directory of a daemon's children: their sockets, and a record of each for whoever comes after a crash.

Normally a child dies with its daemon. Should one outlive it nevertheless, the next daemon finds the abandoned
directory (its lock is free) and ends what is recorded there - by pid, start time and a mark in the environment,
never by name (R69).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import tempfile
from pathlib import Path

from trio_ollama.runners.llama_server.endpoint import Endpoint, loopback, unix_socket
from trio_ollama.runners.llama_server.environment import MARK

__all__ = ["ChildDirectory", "sweep"]

PREFIX = "trio-ollama-runners-"
MARKER = ".made-by-trio-ollama"
"""A directory without this file is somebody else's, whatever its name."""
ATTEMPTS = 10


class ChildDirectory:
    """A directory of mode 0700, locked while its daemon lives. Use as a context manager; all calls are short."""

    def __init__(self, root: Path | None = None) -> None:
        """Create it under `root` (the user's run-time directory by default). Raises `OSError`."""
        self._root = root or _default_root()
        self._children = 0
        self.path, self._lock = self._create()

    def _create(self) -> tuple[Path, int]:
        for _ in range(ATTEMPTS):
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._root))
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists():
                    (path / MARKER).touch()
                    return path, lock
            os.close(lock)  # another daemon's sweep was quicker
        raise OSError(f"no directory can be made in {self._root}")

    def __enter__(self) -> ChildDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self.path)
        os.close(self._lock)

    def endpoint(self) -> Endpoint:
        """An address for the next child: a socket that no other has ever had (R82), or a loopback port."""
        self._children += 1
        return unix_socket(self.path / f"{self._children}.sock") or loopback()

    def record(self, pid: int) -> Path:
        """Note a child that has just been started; returns the record, to be unlinked when it is reaped.

        It is a precaution: a child without a record (disk full, gone already) is no reason to fail.
        """
        record = self.path / f"{pid}.json"
        with contextlib.suppress(OSError):
            record.write_text(json.dumps({"pid": pid, "started": _start_time(pid)}))
        return record


def sweep(root: Path | None = None) -> list[int]:
    """Remove the directories of daemons that are gone and end their children; returns the pids that were ended."""
    ended: list[int] = []
    for path in sorted((root or _default_root()).glob(PREFIX + "*")):
        try:
            if path.is_symlink() or path.stat().st_uid != os.getuid() or not (path / MARKER).is_file():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its daemon lives
            pass
        else:
            ended += [pid for record in path.glob("*.json") if (pid := _end(record, str(path)))]
            _remove(path)
        finally:
            os.close(lock)
    return ended


def _remove(path: Path) -> None:
    """Remove what we put there, by name, and then the directory; anything else in it stays, and the directory, too."""
    for pattern in ("[0-9]*.sock", "[0-9]*.json", MARKER):
        for ours in path.glob(pattern):
            with contextlib.suppress(OSError):
                ours.unlink()
    with contextlib.suppress(OSError):
        path.rmdir()


def _end(record: Path, directory: str) -> int | None:
    """Kill the recorded process if it is still the same one."""
    try:
        noted = json.loads(record.read_text())
        pid, started = int(noted["pid"]), int(noted["started"])
        handle = os.pidfd_open(pid)  # from here on the pid cannot come to mean another process
    except (OSError, ValueError, TypeError, KeyError):
        return None
    try:
        if _start_time(pid) != started or f"{MARK}={directory}".encode() not in _environment(pid):
            return None
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return None
    finally:
        os.close(handle)
    return pid


def _start_time(pid: int) -> int:
    """Clock ticks from the boot to the start of the process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _environment(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _default_root() -> Path:
    run_time = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(run_time) if run_time and os.access(run_time, os.W_OK) else Path(tempfile.gettempdir())
