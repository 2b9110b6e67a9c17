"""Completion as people meet it: real shells in a terminal, their scripts installed as `completion --help` says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.fake_ollama import Answer, FakeOllama
from tests.support.tmux import NO_TMUX, Tmux

in_a_terminal = pytest.mark.skipif(bool(NO_TMUX), reason=NO_TMUX)

NAMES: Final = ("smollm2:latest", "smollm2:1.7b", "Other/llama:8b", "10.0.0.1:5000/me/mine:Q4")
READY: Final = r"^ready>"
SETTINGS: Final = {
    "bash": ["exec bash --norc --noprofile", "PS1='rea''dy> '", 'eval "$(trio-ollama completion bash)"'],
    "zsh": ["exec zsh -f", "PS1='rea''dy> '", 'eval "$(trio-ollama completion zsh)"'],
    "fish": [
        "exec fish",
        "trio-ollama completion fish > ~/.config/fish/completions/trio-ollama.fish",
        "function fish_prompt; echo 'rea''dy> '; end",
    ],
}
LINES: Final = {
    "trio-ollama sto|--fo|smo|": "trio-ollama stop --force smollm2:1.7b",
    "trio-ollama rm smollm2:1|O|10.0.0.1:5|": "trio-ollama rm smollm2:1.7b Other/llama:8b 10.0.0.1:5000/me/mine:Q4",
    "trio-ollama show 'smollm2:l|": "trio-ollama show 'smollm2:latest'",
    "trio-ollama create new -f ~/some|": "trio-ollama create new -f ~/something.txt",
}
"""What is typed, with a press of Tab for each stroke, and what then stands there."""


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama.running() as fake:
        fake.answers["GET /api/tags"] = Answer({"models": [{"name": name} for name in NAMES]})
        fake.answers["GET /api/ps"] = Answer({"models": [{"name": NAMES[1]}]})
        yield fake


def shell_or_skip(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell} on this machine")
    return found


@in_a_terminal
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_tab_makes_of_a_line(shell: str, server: FakeOllama, tmp_path: Path) -> None:
    shell_or_skip(shell)
    (tmp_path / "something.txt").touch()
    with Tmux({"HOME": str(tmp_path), "OLLAMA_HOST": server.address}) as terminal:
        for line in SETTINGS[shell]:
            terminal.enter(line)
        terminal.wait_for(READY)
        for typed, line in LINES.items():
            terminal.press("C-l")  # the screen begins anew
            for piece in typed.split("|")[:-1]:
                terminal.type(piece)
                terminal.press("Tab")
                # The next is typed when this one is there, and what it makes of it.
                terminal.wait_for(rf"^ready> .*{piece[-3:]}.")
            terminal.wait_for(rf"(?s)^ready> {line}".replace(" ", r"\s+"))
            terminal.press("C-u")
        assert "rror" not in terminal.screen()


@in_a_terminal
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_without_a_server_nothing_is_offered_and_nothing_said(shell: str, tmp_path: Path) -> None:
    shell_or_skip(shell)
    with Tmux({"HOME": str(tmp_path), "OLLAMA_HOST": "127.0.0.1:1"}) as terminal:
        for line in SETTINGS[shell]:
            terminal.enter(line)
        terminal.wait_for(READY)
        terminal.press("C-l")
        terminal.type("trio-ollama show ")
        terminal.press("Tab")
        terminal.type("what I type")
        screen = terminal.wait_for("^ready> trio-ollama show what I type")
    assert len(screen.splitlines()) == 1, screen


def test_fish_shows_all_that_describes_a_command(tmp_path: Path) -> None:
    """Commas, too."""
    fish = shell_or_skip("fish")
    program = tmp_path / "trio-ollama"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trio_ollama.cli "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [fish, "--no-config", "-c", 'trio-ollama completion fish | source; complete -C "trio-ollama ru"'],
        capture_output=True,
        text=True,
        env=os.environ | {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("run\tAsk a model: one question, or a conversation\n", "")
