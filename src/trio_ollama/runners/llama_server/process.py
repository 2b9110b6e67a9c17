"""One child process: started, watched, ended and reaped."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from trio_ollama.runners.contract import SpawnError

__all__ = ["ChildProcess", "Vitals"]


class ChildProcess:
    """A process in a session of its own, with its output and its stdin on pipes.

    It is started with `subprocess` in the calling thread, which has to live as long as the daemon: the parent-death
    signal follows the thread (trio starts processes in threads that end when idle). Its exit is seen on a pidfd.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it. Raises `SpawnError`."""
        stdin, self._stdin = os.pipe()  # held open, never written: its end tells the child that the daemon is gone
        self._output, output = os.pipe()
        try:
            self._popen = subprocess.Popen(
                command, env=environment, stdin=stdin, stdout=output, stderr=output, start_new_session=True
            )
            self._pidfd = os.pidfd_open(self._popen.pid)
        except OSError as error:
            os.close(self._stdin)
            os.close(self._output)
            raise SpawnError(f"error starting llama-server: {error}") from error
        finally:
            os.close(stdin)
            os.close(output)
        self.pid = self._popen.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None until the process is reaped."""
        return self._popen.returncode

    def take_output(self) -> trio.lowlevel.FdStream:
        """The stream of its stdout and stderr. Once only; the caller closes it."""
        stream, self._output = trio.lowlevel.FdStream(self._output), -1
        return stream

    async def wait(self) -> int:
        """Wait for the exit, reap the process and return its status. For one task at a time."""
        if self.status is None:
            await trio.lowlevel.wait_readable(self._pidfd)
            self.kill()  # what the leader leaves behind in its group: as a zombie it still owns the group's number
            self._popen.poll()
        else:
            await trio.lowlevel.checkpoint()
        assert self.status is not None
        return self.status

    def terminate(self) -> None:
        """SIGTERM to the group; nothing once the leader is reaped (R71)."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the group; nothing once the leader is reaped (R71)."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.status is None:
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                pass
            except PermissionError:  # every member is a zombie or no longer ours
                pass

    def close(self) -> None:
        """Let go of the pipes and the pidfd."""
        for descriptor in (self._stdin, self._output, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._stdin = self._output = self._pidfd = -1


class Vitals:
    """Signs of life of a process that says nothing: a load prints no progress (R83)."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen = (-1, -1)

    def moved(self) -> bool:
        """True if the process has read something, or its memory has grown, since the last time."""
        read, resident = self._now()
        moved = read > self._seen[0] or resident > self._seen[1]
        self._seen = max(read, self._seen[0]), max(resident, self._seen[1])
        return moved

    def _now(self) -> tuple[int, int]:
        """Bytes ever read and pages in memory; the kernel answers at once."""
        folder = Path("/proc", str(self._pid))
        try:
            read = next(
                int(line[7:]) for line in (folder / "io").read_bytes().splitlines() if line.startswith(b"rchar: ")
            )
            resident = int((folder / "statm").read_bytes().split()[1])
        except (OSError, StopIteration, IndexError, ValueError):
            return self._seen
        return read, resident
