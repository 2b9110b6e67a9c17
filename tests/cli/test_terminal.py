"""`run` in a real terminal, with a real daemon. Nothing is timed: what is to appear is waited for."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pictures import picture
from tests.support.real_daemon import RealDaemon, wait_until
from tests.support.scripted_gguf import write_scripted_gguf
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_projector import write_tiny_projector
from tests.support.tmux import NO_TMUX, Tmux

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(NO_TMUX), reason=NO_TMUX)]

ONE_THREAD = {"num_thread": 1}
SOON = 10.0
"""Seconds for the server to notice that its client has gone: milliseconds, on a machine that does nothing else."""

SAID = (
    "It is a long story, and not even half of this can be told before the line ends, "
    "\x1b[2J\x1b]0;mine\x07because 世界很大 while words go on."
)
READY = r"^>>> Send a message \(/\? for help\)\Z"
"""The last line of the screen, when a message is waited for."""
SPEAKING = r"(.+\n){5}.+\Z"
"""Of an answer without an end, which scrolls away."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDaemon]:
    """Has `short` answers, `long` ones that take half a minute, a `teller` that thinks, and a `seer` of pictures."""
    folder = tmp_path_factory.mktemp("terminal")
    store = OllamaStore(folder / "models")
    tiny = write_tiny_gguf(folder / "tiny.gguf", context=32_768).read_bytes()
    store.add("short:latest", tiny, params={**ONE_THREAD, "num_predict": 8, "num_ctx": 2048})
    store.add("long:latest", tiny, params={**ONE_THREAD, "num_predict": 30_000, "num_ctx": 32_768})
    pieces = ["<think>\n", "Hmm.", "\n</think>\n\n", *re.findall(r"\s*\S+", SAID)]
    teller = write_scripted_gguf(folder / "teller.gguf", pieces).read_bytes()
    store.add("teller:latest", teller, params=ONE_THREAD)
    projector = store.layer("projector", write_tiny_projector(folder / "projector.gguf").read_bytes())
    store.add("seer:latest", tiny, params={**ONE_THREAD, "num_predict": 8, "num_ctx": 2048}, layers=[projector])
    with RealDaemon(store.root) as daemon:
        yield daemon


@pytest.fixture
def terminal(daemon: RealDaemon, tmp_path: Path) -> Iterator[Tmux]:
    """A shell in an empty home."""
    with Tmux({"HOME": str(tmp_path), "OLLAMA_HOST": f"127.0.0.1:{daemon.port}"}) as terminal:
        yield terminal


@pytest.fixture
def run(terminal: Tmux) -> Callable[[str], None]:
    """Starts a conversation and waits for its first prompt."""

    def start(model: str) -> None:
        terminal.enter(f"clear; trio-ollama run {model}")
        terminal.wait_for(READY)

    return start


def ask(daemon: RealDaemon, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(daemon.url + path, data, timeout=SOON) as response:
        return json.load(response)


def requests(daemon: RealDaemon) -> list[Any]:
    found: list[Any] = ask(daemon, "/api/requests")["requests"]
    return found


def saved(daemon: RealDaemon, terminal: Tmux, name: str) -> list[tuple[str, str]]:
    """What was said so far, as the conversation saves it: roles and texts."""
    terminal.enter(f"/save {name}")
    terminal.wait_for(f"Created new model '{name}'\n{READY}")
    return [(each["role"], each["content"]) for each in ask(daemon, "/api/show", {"model": name})["messages"]]


def test_talking_and_leaving(daemon: RealDaemon, terminal: Tmux, run: Callable[[str], None]) -> None:
    run("short")
    terminal.enter("/?")
    terminal.wait_for(r"^  /set +How .*\n(.*\n)*" + READY)
    terminal.enter("/set verbose")
    terminal.wait_for(READY)
    terminal.enter("hello")
    terminal.wait_for(r"^eval count: +8 token\(s\)\n(.*\n)+" + READY)
    (_, question), (role, answer) = saved(daemon, terminal, "greeting")
    assert (question, role) == ("hello", "assistant")
    assert answer
    terminal.enter("/bye")
    terminal.wait_for_shell()
    terminal.enter("clear; echo status $?; stty -a")
    assert " echo " in terminal.wait_for(r"^status 0\n(.*\n)+shell>")


def test_an_answer_is_stopped_and_the_server_stops_too(
    daemon: RealDaemon, terminal: Tmux, run: Callable[[str], None]
) -> None:
    run("long")
    terminal.enter("tell")
    terminal.wait_for(SPEAKING)
    assert [request["stage"] for request in requests(daemon)] == ["generating"]
    terminal.type("typed meanwhile")
    terminal.press("C-c")
    assert "typed" not in terminal.wait_for(READY)
    for _ in wait_until(SOON):
        if not requests(daemon):
            break
    assert requests(daemon) == []
    assert "long:latest" in [model["name"] for model in ask(daemon, "/api/ps")["models"]]  # loaded, and idle
    assert "POST /api/chat 499" in daemon.log

    terminal.enter("/set parameter num_predict 3")
    terminal.wait_for(f"Set parameter 'num_predict' to '3'\n{READY}")
    terminal.enter("again")
    terminal.wait_for(r">>> again\n.+\n\n" + READY)
    # What was shown of the stopped answer counts as said.
    assert [role for role, _ in saved(daemon, terminal, "stopped")] == ["user", "assistant"] * 2


def test_keys_that_leave_and_keys_that_do_not(terminal: Tmux, run: Callable[[str], None]) -> None:
    run("short")
    terminal.press("C-c")
    terminal.wait_for(r"^Use Ctrl \+ d or /bye to exit\.\n" + READY)
    terminal.type("half a line")
    terminal.wait_for(r"^>>> half a line\Z")
    terminal.press("C-c")
    terminal.wait_for(r"^>>> half a line\n" + READY)
    terminal.press("C-d")
    screen = terminal.wait_for_shell()
    assert screen.count("Use Ctrl") == 1


def test_messages_of_several_lines(daemon: RealDaemon, terminal: Tmux, run: Callable[[str], None]) -> None:
    run("short")
    terminal.enter('"""one')
    terminal.wait_for(r'^>>> """one\n\.\.\.\Z')
    terminal.enter('two"""')
    terminal.wait_for(r'^\.\.\. two"""\n.+\n\n' + READY)
    terminal.paste("three\n\tfour\n")
    terminal.wait_for(r"^>>> three\n\.\.\. +four\n\.\.\.\Z")  # not sent yet
    terminal.enter("five")
    terminal.wait_for(r"^\.\.\. five\n.+\n\n" + READY)
    said = saved(daemon, terminal, "lines")
    assert [text for role, text in said if role == "user"] == ["one\ntwo", "three\n\tfour\nfive"]


def test_history_goes_on_in_the_next_session(
    daemon: RealDaemon, terminal: Tmux, run: Callable[[str], None], tmp_path: Path
) -> None:
    run("short")
    terminal.enter("first question")
    terminal.wait_for(r"^>>> first question\n.+\n\n" + READY)
    terminal.enter("/set nohistory")
    terminal.wait_for(r"not kept in the history\.\n" + READY)
    terminal.enter("secret")
    terminal.wait_for(r"^>>> secret\n.+\n\n" + READY)
    terminal.press("C-d")
    terminal.wait_for_shell()
    assert (tmp_path / ".ollama" / "history").read_text() == "first question\n/set nohistory\n"
    run("short")
    terminal.press("Up")
    terminal.wait_for(r"^>>> /set nohistory\Z")
    terminal.press("Up")
    terminal.wait_for(r"^>>> first question\Z")
    terminal.press("Enter")
    terminal.wait_for(r"^>>> first question\n.+\n\n" + READY)


def test_a_picture(daemon: RealDaemon, terminal: Tmux, run: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "my cat.png").write_bytes(picture((200, 10, 10)))
    run("seer")
    terminal.enter(r"what is ./my\ cat.png?")
    terminal.wait_for(r"^Added image './my cat\.png'\n.+\n\n" + READY)
    assert saved(daemon, terminal, "seen")[0] == ("user", "what is ?")


def test_lines_are_wrapped_thoughts_are_grey_and_the_model_does_not_command(
    daemon: RealDaemon, terminal: Tmux, run: Callable[[str], None]
) -> None:
    run("teller")
    terminal.enter("tell")
    screen = terminal.wait_for(r"go on\.\n\n" + READY)
    thoughts, _, answer = screen.partition("...done thinking.\n\n")
    assert thoughts.endswith(">>> tell\nThinking...\nHmm.\n")
    assert answer.split("\n")[:3] == [
        "It is a long story, and not even half of this can be told before the line ends,",
        "[2J]0;minebecause 世界很大 while words go on.",
        "",
    ]
    assert "\x1b[90mThinking..." in terminal.screen(colours=True)


def test_one_question_on_a_terminal_and_in_a_pipe(terminal: Tmux, tmp_path: Path) -> None:
    terminal.enter("clear; trio-ollama run --hidethinking teller tell")
    screen = terminal.wait_for_shell()
    assert screen.split("\n")[-3:-1] == [
        "It is a long story, and not even half of this can be told before the line ends,",
        "[2J]0;minebecause 世界很大 while words go on.",
    ]
    # A pipe has no width, and what goes through it is nobody's terminal.
    terminal.enter("clear; echo tell | trio-ollama run --hidethinking teller | cat > answer; echo done")
    terminal.wait_for("^done\n")
    assert (tmp_path / "answer").read_text() == f"{SAID}\n"
    terminal.enter("clear; trio-ollama run long tell; echo status $?")
    terminal.wait_for(SPEAKING)
    terminal.press("C-c")
    assert "Error" not in terminal.wait_for("^status 130\n")
