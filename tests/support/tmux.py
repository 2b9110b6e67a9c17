"""A terminal as people use one: a shell in tmux, keys that are pressed, and a screen that is looked at."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.real_daemon import wait_until

__all__ = ["NO_TMUX", "Tmux"]

NO_TMUX: Final = "" if shutil.which("tmux") else "there is no tmux on this machine"
"""Why there are no terminals here; empty if there are."""

LIMIT: Final = 30.0
"""Seconds for something to appear: what is waited for takes tenths of one."""
SHELL_PROMPT: Final = "shell>"


class Tmux:
    """A server of its own with one shell, 80 columns by 24 lines. A context manager; leaving it ends all within.

    `trio-ollama` is in the shell's path; `variables` are added to its environment.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._socket = ""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))  # a socket's path must be short
            self._socket = str(folder / "tmux")
            program = folder / "trio-ollama"
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m trio_ollama.cli "$@"\n')
            program.chmod(0o700)
            environment = {**self._variables, "ENV": ""}
            settings = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
            self._tmux("new-session", "-d", "-x", "80", "-y", "24", *settings, "sh")
            self._stack.callback(self._tmux, "kill-server")
            self.wait_for(r"[#$]\Z")  # not every shell takes its prompt from the environment
            self.enter(f'PATH={shlex.quote(str(folder))}:"$PATH"; PS1="{SHELL_PROMPT} "; cd; clear')
            self.wait_for_shell()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stack.close()

    def type(self, text: str) -> None:
        """Text, as it is."""
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Keys, by tmux's names: `Enter`, `C-c`, `Up`."""
        self._tmux("send-keys", *keys)

    def enter(self, line: str) -> None:
        """A line and its end."""
        self.type(line)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """As from a clipboard, marked as pasted if the program wants to know."""
        self._tmux("set-buffer", "--", text)
        self._tmux("paste-buffer", "-p")

    def screen(self, *, colours: bool = False) -> str:
        """What is to be seen, without the blanks at the ends of lines; with `colours` as the escape sequences."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else [])).rstrip("\n")

    def wait_for(self, pattern: str) -> str:
        """Look until the pattern is on the screen (`^` and `$` are those of lines); returns the screen."""
        screen = ""
        for _ in wait_until(LIMIT, pause=0.05):
            screen = self.screen()
            if re.search(pattern, screen, re.MULTILINE):
                return screen
        raise AssertionError(f"{pattern!r} did not appear, but\n{screen}")

    def wait_for_shell(self) -> str:
        """Until the program has ended."""
        return self.wait_for(rf"^{re.escape(SHELL_PROMPT)}\Z")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT).stdout
