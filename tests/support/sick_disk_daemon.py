"""The real daemon on a disk that is full, or that cannot be written, whenever the test says so.

Run as a module it is `trio-ollama`. The word in the file that `SICK_DISK` names decides what calls of the operating
system that write answer: `full` or `read-only`; any other, or no such file: they do what they always do. Tests may run
as root, whom no mode bits stop, and few may mount a file system.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tests.support.real_daemon import RealDaemon

__all__ = ["SickDiskDaemon"]


class SickDiskDaemon(RealDaemon):
    """A daemon whose disk can be made sick: assign to `disk`."""

    module = "tests.support.sick_disk_daemon"

    def __init__(self, store: Path, word: Path, **variables: str) -> None:
        super().__init__(store, SICK_DISK=str(word), **variables)
        self._word = word

    @property
    def disk(self) -> str:
        return self._word.read_text()

    @disk.setter
    def disk(self, state: str) -> None:
        self._word.write_text(state)


def _state() -> str:
    try:
        return Path(os.environ["SICK_DISK"]).read_text()
    except FileNotFoundError:
        return ""


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    def instead(path: Any, *arguments: Any, **options: Any) -> Any:
        if _state() == "read-only":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))
        return original(path, *arguments, **options)

    return instead


def _mkstemp(*arguments: Any, **options: Any) -> tuple[int, str]:
    """On a full disk files can still be made; the kernel's own device refuses what is written to them."""
    descriptor, name = _original_mkstemp(*arguments, **options)
    if _state() == "full":
        os.close(descriptor)
        descriptor = os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC)
    return descriptor, name


_original_mkstemp = tempfile.mkstemp

if __name__ == "__main__":
    from trio_ollama.cli import main

    for name in ("replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir", "utime"):
        setattr(os, name, _refusing(getattr(os, name)))
    original_open: Callable[..., int] = os.open

    def _open(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        writes = flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and str(path).startswith(os.environ["OLLAMA_MODELS"])
        opening = cast(Callable[..., int], _refusing(original_open)) if writes else original_open
        return opening(path, flags, *arguments, **options)

    for module, name, instead in ((os, "open", _open), (tempfile, "mkstemp", _mkstemp)):
        setattr(module, name, instead)
    main()
