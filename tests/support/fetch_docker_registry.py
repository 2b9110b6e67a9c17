"""Get Debian's `docker-registry` without being root, if the machine has none: download the package and unpack it.

Usage: `python -m tests.support.fetch_docker_registry`. Exit status 0 when the program is there, 1 when it cannot be
had. What was fetched lies in the user's cache directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.docker_registry import CACHED, PACKAGE, find_docker_registry

__all__ = ["main"]

LIMIT = 120
"""Seconds for each step."""


def main() -> int:
    """Find or fetch; returns the exit status."""
    if find_docker_registry() is None:
        print(f"fetching {PACKAGE} (about 6 MB)", flush=True)
        try:
            fetch()
        except (OSError, subprocess.SubprocessError, LookupError) as error:
            print(f"{PACKAGE} cannot be fetched: {error}", file=sys.stderr)
            return 1
    print(find_docker_registry())
    return 0


def fetch() -> None:
    """Raises OSError, LookupError or subprocess.SubprocessError: no apt here, no network, no such package."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            run("apt-get", "download", PACKAGE, folder=folder)
        except subprocess.CalledProcessError:
            # Images of containers come without package lists, and only root may renew the machine's own.
            (folder / "lists" / "partial").mkdir(parents=True)
            own = ["-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}"]
            run("apt-get", *own, "update", folder=folder)
            run("apt-get", *own, "download", PACKAGE, folder=folder)
        for package in folder.glob("*.deb"):
            run("dpkg-deb", "-x", str(package), str(folder / "files"), folder=folder)
            CACHED.parent.mkdir(parents=True, exist_ok=True)
            # In one step: two runs may fetch at once, and a test may look meanwhile.
            half = CACHED.with_suffix(f".{os.getpid()}")
            shutil.copy2(folder / "files" / "usr" / "bin" / PACKAGE, half)
            half.replace(CACHED)
            return
    raise LookupError("no package came")


def run(*command: str, folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=LIMIT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
