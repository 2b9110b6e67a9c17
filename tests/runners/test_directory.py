"""The children's directory, and what is done about the children of a daemon that is gone."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trio_ollama.runners.llama_server.directory import MARKER, PREFIX, ChildDirectory, sweep
from trio_ollama.runners.llama_server.environment import MARK


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    """The directory of a daemon that was killed: it is there, and nobody holds its lock."""
    path = tmp_path / f"{PREFIX}abandoned"
    path.mkdir(mode=0o700)
    (path / MARKER).touch()
    return path


@pytest.fixture
def leftover(abandoned: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that such a daemon started."""
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, MARK: str(abandoned)})
    yield process
    process.kill()
    process.wait()


def record(directory: Path, pid: int, *, earlier: int = 0) -> None:
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    (directory / f"{pid}.json").write_text(json.dumps({"pid": pid, "started": started - earlier}))


def test_private_and_removed(tmp_path: Path) -> None:
    with ChildDirectory(tmp_path) as directory:
        assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
        first, second = directory.endpoint(), directory.endpoint()
        assert first.host != second.host
        assert first.port == 0
        assert Path(first.host).parent == directory.path
        assert json.loads(directory.record(os.getpid()).read_text())["pid"] == os.getpid()
    assert not directory.path.exists()


def test_a_path_too_long_for_a_socket_falls_back_to_loopback(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 100)
    root.mkdir()
    with ChildDirectory(root) as directory:
        endpoint = directory.endpoint()
    assert endpoint.host == "127.0.0.1"
    assert endpoint.port
    assert endpoint.key
    assert endpoint.key not in repr(endpoint)


def test_a_leftover_is_ended(tmp_path: Path, abandoned: Path, leftover: subprocess.Popen[bytes]) -> None:
    """R69."""
    record(abandoned, leftover.pid)
    assert sweep(tmp_path) == [leftover.pid]
    assert leftover.wait(10) == -signal.SIGKILL
    assert not abandoned.exists()


def test_a_process_that_has_got_the_pid_since_is_not(
    tmp_path: Path, abandoned: Path, leftover: subprocess.Popen[bytes]
) -> None:
    record(abandoned, leftover.pid, earlier=1)
    assert sweep(tmp_path) == []
    assert leftover.poll() is None
    assert not abandoned.exists()


def test_a_process_without_the_mark_is_not(tmp_path: Path, abandoned: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        record(abandoned, stranger.pid)
        assert sweep(tmp_path) == []
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "started": 1}', '{"pid": 999999999, "started": 1}'])
def test_a_useless_record(tmp_path: Path, abandoned: Path, text: str) -> None:
    (abandoned / "1.json").write_text(text)
    assert sweep(tmp_path) == []
    assert not abandoned.exists()


def test_a_living_daemon_is_left_alone(tmp_path: Path) -> None:
    with ChildDirectory(tmp_path) as directory:
        assert sweep(tmp_path) == []
        assert directory.path.exists()


def test_what_is_not_a_directory_of_ours_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}file").write_text("")
    assert sweep(tmp_path) == []
    assert target.exists()
    assert (tmp_path / f"{PREFIX}file").exists()


def test_a_folder_of_the_user_with_our_name_is_left_alone(tmp_path: Path) -> None:
    """Say, a clone of this project: nothing in it may be lost."""
    clone = tmp_path / f"{PREFIX}clone"
    clone.mkdir()
    (clone / "7.json").write_text("{}")
    assert sweep(tmp_path) == []
    assert (clone / "7.json").exists()


def test_what_we_did_not_put_there_stays(tmp_path: Path, abandoned: Path) -> None:
    (abandoned / "notes.txt").write_text("mine")
    (abandoned / "1.json").write_text("{}")
    assert sweep(tmp_path) == []
    assert [path.name for path in abandoned.iterdir()] == ["notes.txt"]


def test_the_lock_goes_with_the_process(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\n"
        "from trio_ollama.runners.llama_server.directory import ChildDirectory\n"
        "directory = ChildDirectory(pathlib.Path(sys.argv[1]))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    (left,) = tmp_path.glob("trio-ollama-*")
    assert sweep(tmp_path) == []
    assert not left.exists()
