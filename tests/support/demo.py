"""The demonstration: a real model from its file to an answer, through our own command line and daemon.

Usage: `python -m tests.support.demo`. Everything it makes is in a temporary folder. Exit status 0 when each step did
what it should, 1 with the end of the daemon's log when one did not.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support import fetch_smollm2
from tests.support.smollm2 import find_smollm2
from trio_ollama.cli.client import Client, ClientError, UnreachableError

__all__ = ["main"]

QUESTION = "Why is the sky blue? Answer in two sentences."
START_LIMIT = 30.0
STEP_LIMIT = 300.0
STOP_LIMIT = 20.0
"""Seconds for the daemon to listen, for one command, and for the daemon to end."""
LOG_TAIL = 40
"""Lines."""


class DemoFailure(Exception):
    """A step did not do what it should."""


class Demo:
    """One daemon with a store of its own, and the commands that are shown against it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "daemon.log"
        self._host = f"127.0.0.1:{_free_port()}"
        # The user's own settings (another store, another port) must not reach the demonstration.
        foreign = ("OLLAMA_", "TRIO_OLLAMA_")
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self._environment |= {"OLLAMA_HOST": self._host, "OLLAMA_MODELS": str(folder / "models")}
        self._environment["XDG_CACHE_HOME"] = str(folder / "cache")

    def command(self, *arguments: str) -> None:
        """Show a command, run it on this terminal, and insist that it succeeds."""
        print(f"\n$ {shlex.join(('trio-ollama', *arguments))}", flush=True)
        done = subprocess.run(
            _program(*arguments), env=self._environment, stdin=subprocess.DEVNULL, timeout=STEP_LIMIT, check=False
        )
        if done.returncode != 0:
            raise DemoFailure(f"`trio-ollama {arguments[0]}` ended with status {done.returncode}")

    @contextlib.contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """`trio-ollama serve`, listening. It and its runners are gone afterwards, whatever happens."""
        print(f"\n$ OLLAMA_HOST={self._host} OLLAMA_MODELS=... trio-ollama serve &", flush=True)
        with (
            self._log.open("wb") as log,
            subprocess.Popen(
                _program("serve"), env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            ) as process,
        ):
            try:
                self._wait_until_it_listens(process)
                yield process
            finally:
                for left in (*_descendants(process), process):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        left.kill()

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM; the daemon has to end with status 0, to take its runners along and to free its port."""
        print("\n$ kill -TERM %1; wait %1", flush=True)
        runners = _descendants(process)
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            raise DemoFailure(f"the daemon was still there {STOP_LIMIT:.0f} s after SIGTERM") from None
        if status != 0:
            raise DemoFailure(f"the daemon ended with status {status}")
        if left := [runner.pid for runner in runners if runner.is_running()]:
            raise DemoFailure(f"the daemon left processes behind: {left}")
        with contextlib.suppress(UnreachableError):
            self._client().call("GET", "/api/version")
            raise DemoFailure(f"something still listens on {self._host}")
        print(f"The daemon ended cleanly, and {len(runners)} runner(s) with it.")

    def log_tail(self) -> str:
        """The last lines the daemon wrote."""
        if not self._log.exists():
            return ""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_TAIL:])

    def modelfile(self, weights: Path) -> str:
        """Write a Modelfile for the weights; shows it, returns its path."""
        text = f"FROM {weights}\nPARAMETER temperature 0.2\nPARAMETER num_predict 80\n"
        file = self._folder / "Modelfile"
        file.write_text(text)
        print(f"\n$ cat {file}\n{text}", end="", flush=True)
        return str(file)

    def _client(self) -> Client:
        return Client(f"http://{self._host}")

    def _wait_until_it_listens(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(int(START_LIMIT / 0.1)):
            with contextlib.suppress(UnreachableError):
                self._client().call("GET", "/api/version")
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise DemoFailure(f"the daemon ended at once with status {process.wait(0.1)}")
        raise DemoFailure(f"the daemon did not listen within {START_LIMIT:.0f} s")


def main() -> int:
    """Run all steps; returns the exit status."""
    if fetch_smollm2.main() != 0:
        return 1
    weights = find_smollm2()
    assert weights is not None
    with tempfile.TemporaryDirectory(prefix="demo-of-trio-ollama-") as folder:
        demo = Demo(Path(folder))
        try:
            with demo.daemon() as process:
                demo.command("--version")
                demo.command("create", "smollm2", "-f", demo.modelfile(weights))
                demo.command("list")
                demo.command("run", "--verbose", "smollm2", QUESTION)
                demo.command("ps")
                demo.stop(process)
        except (DemoFailure, ClientError, subprocess.TimeoutExpired) as error:
            print(
                f"\nThe demonstration failed: {error}\n\nEnd of the daemon's log:\n{demo.log_tail()}", file=sys.stderr
            )
            return 1
    print("\nThe demonstration is complete.")
    return 0


def _program(*arguments: str) -> list[str]:
    # The script of this very environment, whatever PATH says.
    return [sys.executable, "-m", "trio_ollama.cli", *arguments]


def _descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
