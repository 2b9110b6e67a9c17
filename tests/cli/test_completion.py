"""Completion in shells: what is offered, and that nothing ever goes wrong there."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli import COMMANDS, main
from trio_ollama.cli.client import Client

STORE = {"models": [{"name": name} for name in ("smollm2:latest", "smollm2:1.7b", "Other/llama:8b")]}
LOADED = {"models": [{"name": "smollm2:1.7b"}]}


@pytest.fixture
def store(server: FakeOllama) -> FakeOllama:
    server.answers = {"GET /api/tags": Answer(STORE), "GET /api/ps": Answer(LOADED)}
    return server


def offered(*words: str, shell: str = "zsh") -> list[str]:
    """What is offered for the last word. Of zsh's three lines for each the second is the value."""
    environment = {
        "_TRIO_OLLAMA_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "\n".join(["trio-ollama", *words]),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(main, env=environment, prog_name="trio-ollama")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    return [line.partition(",")[2] for line in lines if line] if shell == "bash" else lines[1::3]


def test_commands_without_importing_any() -> None:
    assert offered("") == list(COMMANDS)
    assert offered("p") == ["pull", "push", "ps"]
    assert "--version" in offered("--")


def test_options() -> None:
    assert offered("ps", "--") == ["--requests", "--json", "--help"]


@pytest.mark.parametrize("command", ["run", "show", "fit", "pull", "push", "cp", "rm"])
def test_models_of_the_store(store: FakeOllama, command: str) -> None:
    assert offered(command, "") == ["smollm2", "smollm2:1.7b", "Other/llama:8b"]
    assert offered(command, "O") == ["Other/llama:8b"]


def test_the_tag_once_there_is_a_colon(store: FakeOllama) -> None:
    names = [name.replace("\\:", ":") for name in offered("show", "smollm2:")]
    assert names == ["smollm2:latest", "smollm2:1.7b"]


def test_several_models(store: FakeOllama) -> None:
    assert offered("rm", "smollm2", "O") == ["Other/llama:8b"]
    assert offered("rm", "smollm2", "") == ["smollm2:1.7b", "Other/llama:8b"], "those that the line has not"


def test_stop_knows_what_is_loaded(store: FakeOllama) -> None:
    assert offered("stop", "") == ["smollm2:1.7b"]


def test_cancel_knows_what_is_under_way(server: FakeOllama) -> None:
    server.answers["GET /api/requests"] = Answer({"requests": [{"id": "r12"}, {"id": "r7"}]})
    assert offered("cancel", "r1") == ["r12"]


def test_a_prompt_may_name_files() -> None:
    assert offered("run", "smollm2", "./pic", shell="bash") == ["./pic"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("show", "smollm2", ":"), ["latest", "1.7b"]),
        (("show", "smollm2", ":", "l"), ["latest"]),
        (("rm", "Other/llama", ":", "8b", "smollm2", ":", "1"), ["1.7b"]),
        (("show", "smo"), ["smollm2", "smollm2:1.7b"]),
        (("show", "smollm2:1"), ["smollm2:1.7b"]),  # COMP_WORDBREAKS without a colon
        (("show", "'smollm2:1"), ["smollm2:1.7b"]),
    ],
)
def test_bash_splits_at_colons(store: FakeOllama, words: tuple[str, ...], names: list[str]) -> None:
    assert offered(*words, shell="bash") == names


@pytest.mark.parametrize(
    "answer",
    [
        Answer({"error": "no"}, 500),
        Answer("<html>"),
        Answer({"models": None}),
        Answer({"models": [{}]}),
        Answer({"models": [3]}),
        Answer({}),
    ],
)
def test_no_server_of_any_use_is_no_error(server: FakeOllama, answer: Answer) -> None:
    server.answers["GET /api/tags"] = answer
    assert offered("show", "") == []


def test_no_server_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    assert offered("show", "") == []


def test_a_mistake_in_the_address_is_not_told_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "call", lambda self, method, path: {"models": []})
    monkeypatch.setenv("OLLAMA_HOST", "http://localhost:99999999")
    assert offered("show", "") == []


def test_a_silent_server_holds_up_nobody(server: FakeOllama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_ollama.cli.completion.PATIENCE", 0.05)
    server.answers["GET /api/tags"] = Answer(silent=True)
    assert offered("show", "") == []
    assert server.client_left.wait(20)


def test_a_host_whose_address_is_not_found_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may look for half a minute."""
    found = threading.Event()
    monkeypatch.setattr("trio_ollama.cli.completion.PATIENCE", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait())
    monkeypatch.setenv("OLLAMA_HOST", "far.example")
    assert offered("show", "") == []
    found.set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_the_program(invoke: Invoke, shell: str) -> None:
    result = invoke("completion", shell)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"_TRIO_OLLAMA_COMPLETE={shell}_complete" in result.stdout
    # What stands in click's scripts, and we change.
    assert ("{ autoload -Uz compinit && compinit -i }\n" in result.stdout) == (shell == "zsh")
    assert ('string split -m 1 "," ' in result.stdout) == (shell == "fish")
    assert invoke("completion", "tcsh").exit_code == 2


def test_a_real_bash_takes_the_script(store: FakeOllama, invoke: Invoke, tmp_path: Path) -> None:
    program = tmp_path / "trio-ollama"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trio_ollama.cli "$@"\n')
    program.chmod(0o755)
    script = invoke("completion", "bash").stdout
    asked = 'COMP_WORDS=(trio-ollama show smollm2 : "") COMP_CWORD=4; _trio_ollama_completion trio-ollama'
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", f'{script}\n{asked}\necho "${{COMPREPLY[@]}}"; complete -p trio-ollama'],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].split() == ["latest", "1.7b"]
    assert "_trio_ollama_completion" in done.stdout.splitlines()[1]
