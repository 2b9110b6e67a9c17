"""The command as a whole: versions, help, mistakes in it, commands of Ollama's that are not here."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama import OLLAMA_API_VERSION, __version__
from trio_ollama.cli import COMMANDS

OURS = f"{OLLAMA_API_VERSION} (trio-ollama {__version__})"


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (
            {"version": OLLAMA_API_VERSION, "trio_ollama": __version__},
            [f"ollama version is {OURS}"],
        ),
        (
            {"version": OLLAMA_API_VERSION, "trio_ollama": "0.0.9"},
            [f"ollama version is {OLLAMA_API_VERSION} (trio-ollama 0.0.9)", f"Warning: client version is {OURS}"],
        ),
        ({"version": "0.5.1"}, ["ollama version is 0.5.1", f"Warning: client version is {OURS}"]),
        ({}, ["Warning: could not connect to a running Ollama instance", f"Warning: client version is {OURS}"]),
    ],
)
@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_versions_of_both_ends(
    server: FakeOllama, invoke: Invoke, flag: str, answer: dict[str, str], lines: list[str]
) -> None:
    server.answers["GET /api/version"] = Answer(answer)
    result = invoke(flag)
    assert (result.exit_code, result.stdout.splitlines(), result.stderr) == (0, lines, "")


def test_without_a_server_the_version_is_this_programs(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    result = invoke("-v")
    assert result.exit_code == 0
    assert result.stdout == (
        f"Warning: could not connect to a running Ollama instance\nWarning: client version is {OURS}\n"
    )


def test_a_silent_server_holds_up_the_version_only_so_long(
    server: FakeOllama, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_ollama.cli.versions.PATIENCE", 0.05)
    server.answers["GET /api/version"] = Answer(silent=True)
    assert invoke("-v").stdout.startswith("Warning: could not connect to a running Ollama instance\n")
    assert server.client_left.wait(30)


def test_alone_it_shows_its_help(invoke: Invoke) -> None:
    assert invoke().exit_code == 0
    assert invoke().output == invoke("--help").output == invoke("help").output
    assert invoke("help", "show").output == invoke("show", "--help").output


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"completion"}))
def test_help_ends_with_the_variables_that_count(invoke: Invoke, name: str) -> None:
    output = invoke(name, "--help").output
    assert "OLLAMA_HOST " in output.partition("Environment")[2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("lst",), "no command 'lst'; did you mean 'list'? (see 'trio-ollama --help')"),
        (("pus", "x"), "no command 'pus'; did you mean 'push' or 'ps'? (see 'trio-ollama --help')"),
        (("xyzzy",), "no command 'xyzzy' (see 'trio-ollama --help')"),
        (("show",), "Missing argument 'MODEL' (see 'trio-ollama show --help')"),
        (("cp", "a"), "Missing argument 'DESTINATION' (see 'trio-ollama cp --help')"),
        (("ps", "a", "b"), "Got unexpected extra argument (b) (see 'trio-ollama ps --help')"),
    ],
)
def test_mistakes_are_one_line_that_says_where_to_read(invoke: Invoke, arguments: tuple[str, ...], error: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {error}\n")


def test_options_that_do_not_exist(invoke: Invoke) -> None:
    for arguments in (("--jsn",), ("ps", "--jsn")):
        result = invoke(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("Error: No such option")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("signin",), ("login",), ("signout",), ("logout",), ("launch", "claude", "--model", "x")]
)
def test_commands_that_will_not_come_say_so(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: '{arguments[0]}' does not exist here: ")
    assert result.stderr.count("\n") == 1
    assert arguments[0] not in invoke("--help").output
