"""What stops a start is one line for the user, before anything was done."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from .conftest import StartDaemon

OLD = 2 * 3600
"""Seconds: a file that nobody refers to and that is as old as this is removed by a start."""
HINT = " (another server? OLLAMA_HOST chooses the address)"


def serve(store: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start a daemon that is not expected to come up."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("OLLAMA_", "TRIO_"))}
    environment |= {"OLLAMA_MODELS": str(store), "OLLAMA_HOST": "127.0.0.1:0", **variables}
    command = [sys.executable, "-m", "trio_ollama.cli", "serve"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def chores(store: Path) -> list[Path]:
    """What the first work of a start would change: a blob that is not used, and one with the name of old stores."""
    unused = store / "blobs" / f"sha256-{'0' * 64}"
    unused.write_bytes(b"nobody's")
    os.utime(unused, (time.time() - OLD,) * 2)  # noqa: TID251 - a file's time is the wall's
    old_name = store / "blobs" / f"sha256:{'1' * 64}"
    old_name.write_bytes(b"old")
    return [unused, old_name]


def test_a_taken_port(store: Path, chores: list[Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = serve(store, OLLAMA_HOST=f"127.0.0.1:{port}")
    assert ended.stderr == f"Error: listen tcp 127.0.0.1:{port}: address already in use{HINT}\n"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert all(path.exists() for path in chores)


def test_the_port_of_a_daemon(store: Path, start_daemon: StartDaemon) -> None:
    """And the first one goes on."""
    daemon = start_daemon()
    ended = serve(store, OLLAMA_HOST=f"127.0.0.1:{daemon.port}")
    assert ended.stderr == f"Error: listen tcp 127.0.0.1:{daemon.port}: address already in use{HINT}\n"
    assert ended.returncode == 1
    assert psutil.Process(daemon.pid).is_running()


@pytest.mark.parametrize("origins", ["example.com", "http://*.example.*", "https://fine.example,ftp://not"])
def test_wrong_origins(origins: str, store: Path, chores: list[Path]) -> None:
    ended = serve(store, OLLAMA_ORIGINS=origins)
    assert ended.stderr.startswith("Error: OLLAMA_ORIGINS: ")
    assert repr(origins.split(",")[-1]) in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (ended.returncode, ended.stdout) == (1, "")
    assert all(path.exists() for path in chores)


def test_a_missing_runner(store: Path) -> None:
    ended = serve(store, TRIO_OLLAMA_RUNNER="external", TRIO_OLLAMA_LLAMA_SERVER="/no/such/llama-server")
    assert ended.stderr.startswith("Error: ")
    assert "/no/such/llama-server" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "models"
    path.write_text("not a directory")
    ended = serve(path)
    assert ended.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 1


def test_a_good_start_does_the_chores(store: Path, chores: list[Path], start_daemon: StartDaemon) -> None:
    """Else the tests above would show nothing."""
    start_daemon()
    assert not any(path.exists() for path in chores)
    assert (store / "blobs" / f"sha256-{'1' * 64}").exists()
