"""The real daemon as a child process of the tests: real sockets, real signals, real runners."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

__all__ = ["RealDaemon", "wait_until"]

START_LIMIT = 30.0


class RealDaemon:
    """`trio-ollama serve` on a free port, with a store of its own. A context manager; leaving it stops the daemon.

    `variables` are environment variables of the daemon. Its log is in `log`, for messages of failed tests.
    """

    module = "trio_ollama.cli"
    """What is run, with the argument `serve`."""
    before: Sequence[str] = ()
    """A program and arguments that become this command line in the end."""

    def __init__(self, store: Path, **variables: str) -> None:
        self.store = store
        self.log_path = store.parent / f"{store.name}.log"
        self.cache = store.parent / f"{store.name}.cache"
        self._variables = variables
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        children = self.children()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"the daemon did not stop\n{self.log}") from None
        for child in children:
            assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, f"left over: {child}\n{self.log}"

    def start(self) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("OLLAMA_", "TRIO_"))}
        environment |= {"OLLAMA_HOST": "127.0.0.1:0", "OLLAMA_MODELS": str(self.store), "OLLAMA_DEBUG": "1"}
        environment["XDG_CACHE_HOME"] = str(self.cache)
        environment |= self._variables
        with self.log_path.open("ab") as log:
            begin = self.log_path.stat().st_size
            self._process = subprocess.Popen(
                [*self.before, sys.executable, "-m", self.module, "serve", *self.arguments()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in wait_until(START_LIMIT):
            found = re.search(rb"listening on http://[^ ]*:(\d+) ", self.log_path.read_bytes()[begin:])
            if found:
                self.port = int(found[1])
                return
            if self._process.poll() is not None:
                break
        raise AssertionError(f"the daemon did not start\n{self.log}")

    def arguments(self) -> list[str]:
        """Of `serve`."""
        return []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")[-20_000:]

    def children(self) -> list[psutil.Process]:
        """The runner processes (the daemon's direct children are runners and nothing else)."""
        try:
            return psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return []

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, limit: float) -> int:
        """The exit status; raises `subprocess.TimeoutExpired`."""
        assert self._process is not None
        return self._process.wait(limit)

    def files_and_sockets(self) -> int:
        """Open file descriptors of the daemon."""
        return psutil.Process(self.pid).num_fds()


def wait_until(limit: float, pause: float = 0.02) -> Iterator[None]:
    """For loops that look at another process, where no event can be waited for: a bounded number of looks."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        yield
        time.sleep(pause)  # noqa: TID251 - the other process cannot tell us
