"""The interactive loop, in a real process on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.asleep import wait_until_asleep
from tests.support.fake_ollama import Answer, FakeOllama

# Opening it once makes the terminal the one whose Ctrl-C reaches the program.
LAUNCH = "import os; os.close(os.open(os.ttyname(0), os.O_RDWR)); from trio_ollama.cli import main; main()"
TIMEOUT = 20.0


class Terminal:
    """A process on a terminal: types, and waits for what appears."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"TERM": "dumb"},
            start_new_session=True,
        )
        os.close(slave)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, once the process waits for something."""
        wait_until_asleep(self.process.pid)
        self.type("\x03")

    def expect(self, pattern: str) -> str:
        """Everything up to the first match of `pattern` in what has not been expected yet."""
        while (found := re.search(pattern, self._seen)) is None:
            ready, _, _ = select.select([self._master], [], [], TIMEOUT)
            assert ready, f"{pattern!r} did not appear, but {self._seen!r}"
            try:
                data = os.read(self._master, 4096)
            except OSError:  # how Linux says that the other side is gone
                data = b""
            assert data, f"{pattern!r} did not appear before the end, but {self._seen!r}"
            self._seen += data.decode().replace("\r\n", "\n")
        text, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return text

    def close(self) -> None:
        os.close(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def talk(server: FakeOllama) -> Iterator[Terminal]:
    """A conversation at its first prompt."""
    server.answers["POST /api/show"] = Answer(
        {
            "capabilities": ["completion"],
            "details": {"family": "llama"},
            "system": "Be kind.",
            "messages": [{"role": "user", "content": "stored"}, {"role": "assistant", "content": "reply"}],
        }
    )
    server.answers["POST /api/generate"] = Answer({"done": True, "done_reason": "load"})
    terminal = Terminal("run", "m")
    terminal.expect(">>> stored\nreply\n>>> ")
    yield terminal
    terminal.close()


def says(*texts: str, **more: Any) -> Answer:
    lines: list[Any] = [{"message": {"role": "assistant", "content": text}, "done": False} for text in texts]
    if not more:
        lines.append({"message": {"role": "assistant", "content": ""}, "done": True})
    return Answer(lines=lines, **more)


def messages(server: FakeOllama) -> list[tuple[str, str]]:
    last = server.asked("POST /api/chat")[-1].json["messages"]
    return [(message["role"], message["content"]) for message in last]


def test_a_conversation_remembers(server: FakeOllama, talk: Terminal) -> None:
    assert server.asked("POST /api/generate")[0].json == {"model": "m", "stream": False}
    server.answers["POST /api/chat"] = [says("Hel", "lo"), says("Fine")]
    talk.type("hi\n")
    talk.expect("Hello\n\n>>> ")
    talk.type('"""one\ntwo"""\n')
    talk.expect("Fine\n\n>>> ")
    assert messages(server) == [("user", "hi"), ("assistant", "Hello"), ("user", "one\ntwo")]
    talk.type("/bye\n")
    assert talk.process.wait(TIMEOUT) == 0


def test_ctrl_c_stops_the_answer_and_nothing_else(server: FakeOllama, talk: Terminal) -> None:
    answers = [says("One, two", endless=True), says(endless=True), Answer(silent=True)]
    server.answers["POST /api/chat"] = [*answers, says("Yes")]
    for number, shown in enumerate(("One, two", "", "")):  # answering; before the first piece; before the response
        talk.type(f"question {number}\n")
        talk.expect(f"question {number}\n{shown}")
        assert server.waiting.wait(TIMEOUT)
        talk.interrupt()
        talk.expect(">>> ")
        assert server.client_left.wait(TIMEOUT)
        server.waiting.clear()
        server.client_left.clear()

    talk.type("still there?\n")
    talk.expect("Yes\n\n>>> ")
    # What was shown counts as said; a question without an answer is forgotten.
    assert messages(server) == [("user", "question 0"), ("assistant", "One, two"), ("user", "still there?")]
    talk.type("\x04")
    assert talk.process.wait(TIMEOUT) == 0


def test_ctrl_c_at_the_prompt(server: FakeOllama, talk: Terminal) -> None:
    talk.interrupt()
    talk.expect(r"Use Ctrl \+ d or /bye to exit\.\n>>> ")
    talk.type("half a line")
    talk.expect("half a line")
    talk.interrupt()
    assert "Use Ctrl" not in talk.expect(">>> ")
    talk.type('"""many\n')
    talk.expect(r"\.\.\. ")
    talk.interrupt()
    assert "Use Ctrl" not in talk.expect(">>> ")
    server.answers["POST /api/chat"] = says("Yes")
    talk.type("clean\n")
    talk.expect("Yes\n\n>>> ")
    assert messages(server) == [("user", "clean")]


def test_an_error_leaves_the_conversation_where_it_was(server: FakeOllama, talk: Terminal) -> None:
    server.answers["POST /api/chat"] = [Answer({"error": "server busy"}, 503), says("Yes")]
    talk.type("hi\n")
    talk.expect("Error: server busy\n\n>>> ")
    talk.type("hi\n")
    talk.expect("Yes\n\n>>> ")
    assert messages(server) == [("user", "hi")]


def test_commands_of_the_loop(server: FakeOllama, talk: Terminal) -> None:
    server.answers["POST /api/chat"] = [says("A"), says("B")]
    for typed, shown in (
        ("/?", "Available Commands:"),
        ("/show", "architecture    llama"),
        ("/show system", "Be kind."),
        ("/show license", "No license was specified for this model."),
        ("/what", r"Unknown command '/what'\. Type /\? for help"),
        ("first", "A"),
        ("/clear", "Cleared the conversation"),
        ("second", "B"),
    ):
        talk.type(f"{typed}\n")
        talk.expect(f"{shown}(.|\n)*>>> ")
    assert messages(server) == [("user", "second")]
    assert len(server.asked("POST /api/chat")) == 2
