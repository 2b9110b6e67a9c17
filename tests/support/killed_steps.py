"""Something that is done to a store, killed before each step it does on the disk.

Usage: `python -m tests.support.killed_steps OPERATION FOLDER`. `FOLDER/before` is a store as it was. The operation is
done to copies of it, `FOLDER/0` to the end, `FOLDER/1` up to the first step, `FOLDER/2` up to the second, and so on.
Prints the steps as a JSON list of names.

A step is a call of the operating system that is not merely a look, nor `fsync`; calls are seen by Python's own
profiler, so that none can be forgotten here. The process has one thread and forks: each death costs milliseconds.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.support.raw_gguf import raw_gguf
from trio_ollama.models.create import CreateRequest, create
from trio_ollama.models.digest import Digest
from trio_ollama.models.store import Store

__all__ = ["NEW_WEIGHTS", "OPERATIONS", "WEIGHTS", "killed_before_each_step", "split"]

WEIGHTS: Final = raw_gguf({"llama.block_count": 2})
NEW_WEIGHTS: Final = raw_gguf({"llama.block_count": 3})
UPLOAD: Final = b"a file on its way" * 1000

_LOOKS: Final = frozenset(
    (
        "__exit__",
        "_path_normpath",
        "close",
        "fileno",
        "flock",
        "fspath",
        "fstat",
        "get_inheritable",
        "getpid",
        "is_dir",
        "is_symlink",
        "listdir",
        "lstat",
        "read",
        "readable",
        "readall",
        "scandir",
        "seek",
        "seekable",
        "stat",
        "tell",
        "urandom",
        "writable",
    )
)
_MODULES: Final = frozenset(("posix", "io", "_io", "fcntl"))


def _make(**fields: Any) -> Callable[[Store], object]:
    return lambda store: list(create(store, CreateRequest(**fields)))


def _upload(store: Store) -> None:
    with store.open_upload(str(Digest.of(UPLOAD))) as writer:
        for start in range(0, len(UPLOAD), 7000):
            writer.write(UPLOAD[start : start + 7000])
        writer.commit()


def _tidy(store: Store) -> None:
    store.prepare()
    store.prune(datetime.datetime.now(datetime.UTC))


def split(number: int) -> bytes:
    """One of the two parts of a model."""
    return raw_gguf({"split.count": 2, "split.no": number}, [(f"t{number}", (8,), 0, 0)], data=32)


_PARTS: Final = {f"s-0000{number}-of-00002.gguf": str(Digest.of(split(number - 1))) for number in (1, 2)}
_FILE: Final = {"new.gguf": str(Digest.of(NEW_WEIGHTS))}

OPERATIONS: Final[Mapping[str, Callable[[Store], object]]] = {
    "create from a file": _make(model="new", files=_FILE, system="new", license=["a", "b"]),
    "create from parts": _make(model="new", files=_PARTS),
    "create from a model": _make(model="new", source="m", system="new", parameters={"seed": 1}),
    "replace by another file": _make(model="m", files=_FILE),
    "replace by itself": _make(model="m", source="m", system="new"),
    "copy": lambda store: store.copy("m", "them/n:v1"),
    "copy over another": lambda store: store.copy("m", "alone"),
    "delete": lambda store: store.delete("alone"),
    "delete one of two": lambda store: store.delete("m"),
    "upload": _upload,
    "tidy up": _tidy,
}


class Steps:
    """Counts them, and dies before one of them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.names: list[str] = []

    def __call__(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and self._writes(called):
            self.names.append(called.__name__)
            if len(self.names) == self.last:
                os.kill(os.getpid(), signal.SIGKILL)

    def _writes(self, called: Any) -> bool:
        owner = getattr(called, "__self__", None)
        module = getattr(called, "__module__", None) or type(owner).__module__
        return module in _MODULES and called.__name__ not in _LOOKS


def _run(operation: Callable[[Store], object], root: Path, last: int, report: Path) -> int:
    """In a process of its own; returns its wait status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        steps = Steps(last)
        sys.setprofile(steps)
        operation(Store(root))
        sys.setprofile(None)
        report.write_text(json.dumps(steps.names))
        os._exit(0)
    except BaseException:
        sys.setprofile(None)
        traceback.print_exc()
    finally:
        os._exit(3)


def main(name: str, folder: Path) -> None:
    """Raises RuntimeError when a process ends in another way than it should."""
    os.fsync = lambda fd: None  # no power cuts here; it takes most of the time
    report = folder / "steps.json"
    last, steps = 0, 1
    while last <= steps:
        root = folder / str(last)
        shutil.copytree(folder / "before", root, symlinks=True)
        status = _run(OPERATIONS[name], root, last, report)
        if status != (signal.SIGKILL if last else 0):
            raise RuntimeError(f"step {last}: status {status}")
        if last == 0:
            steps = len(json.loads(report.read_text()))
        last += 1
    print(report.read_text())


def killed_before_each_step(name: str, folder: Path) -> list[str]:
    """Run this module in an interpreter of its own; returns the steps' names."""
    command = [sys.executable, "-m", "tests.support.killed_steps", name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
