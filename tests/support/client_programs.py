"""Starting the programs of `tests.support.clients`, and what they need: a Python with their package, or node."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
import trio

__all__ = ["PROGRAMS", "Program", "Running"]

ROOT: Final = Path(__file__).parents[2]
FETCHED_WITHIN: Final = 60.0
"""Seconds for npm, which fails at once where there is no network."""


@dataclass(frozen=True)
class Program:
    """One client; `package` is what it needs, as Python or npm import it, `ways` in how many it leaves a request."""

    name: str
    package: str
    ways: int

    @property
    def javascript(self) -> bool:
        return self.name.endswith(".cjs")

    def command(self, cache: Callable[[str], Path]) -> list[str]:
        """Skips the test, with the reason, where the client cannot be had; `cache` makes folders that stay."""
        if self.javascript:
            file = ROOT / "tests" / "support" / "clients" / self.name
            return [_node(), str(file), str(_fetched(self.package, cache(f"npm-{self.package}")))]
        if importlib.util.find_spec(self.package) is None:
            pytest.skip(f"{self.package} is not installed here: it has an environment of its own, `clients`")
        return [sys.executable, "-m", f"tests.support.clients.{self.name}"]


PROGRAMS: Final = (
    Program("ollama_python", "ollama", 5),
    Program("openai_python", "openai", 6),
    Program("ollama_javascript.cjs", "ollama", 3),
    Program("langchain", "langchain_ollama", 3),
    Program("llama_index", "llama_index", 3),
)


def _node() -> str:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("there is no node with npm here")
    return node


def _fetched(package: str, folder: Path) -> Path:
    if not (folder / "node_modules" / package / "package.json").exists() and (reason := _fetch(package, folder)):
        pytest.skip(reason)
    return folder


@functools.cache
def _fetch(package: str, folder: Path) -> str:
    """Tried once; why it failed, else nothing."""
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0"]
    line = ["npm", "install", "--prefix", str(folder), *options, package]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=FETCHED_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        return f"npm did not fetch {package} within {FETCHED_WITHIN:g} s"
    return f"npm cannot fetch {package}: {done.stderr.strip()[-300:]}" if done.returncode else ""


class Running:
    """A program at work. An async context manager; leaving it ends the process."""

    def __init__(self, command: Sequence[str], url: str, what: str) -> None:
        self._command = [*command, url, what]
        self._process: trio.Process | None = None
        self._said = b""

    async def __aenter__(self) -> Self:
        self._process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ | {"NO_PROXY": "*"},
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        with trio.CancelScope(shield=True):
            await self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                await pipe.aclose()

    async def line(self) -> str | None:
        """The next line it prints; None when it has ended well. Raises AssertionError with its last words if not."""
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._said:
            data = await self._process.stdout.receive_some()
            if not data:
                status = await self._process.wait()
                assert status == 0, f"status {status}: {self._said.decode(errors='replace')}"
                return None
            self._said += data
        line, self._said = self._said.split(b"\n", 1)
        return line.decode(errors="replace")

    async def words(self) -> list[str]:
        """All lines to come. Raises AssertionError with them if it ends badly."""
        lines: list[str] = []
        try:
            while (line := await self.line()) is not None:
                lines.append(line)
        except AssertionError as error:
            raise AssertionError("\n".join([*lines, str(error)])) from None
        return lines

    async def go_on(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        await self._process.stdin.send_all(b"\n")
