"""The conversation of `run` against a scripted server: turns, Ctrl-C, errors, slash commands. Lines are given to it;
the line editor has tests of its own."""

from __future__ import annotations

import base64
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.asleep import wait_until_asleep
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.chat.conversation import Conversation
from trio_ollama.cli.chat.interrupts import Interrupts, interrupts
from trio_ollama.cli.client import Client, ClientError
from trio_ollama.cli.session import Session

TIMEOUT = 20.0

Line = str | type[BaseException] | Callable[[], str]
Talk = Callable[..., str]


class Typed:
    """A line editor for a user who knows beforehand what to say; an exception stands for a key. Leaves at the end."""

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self.remembers = True
        self._lines = iter(lines)

    def read(self) -> str:
        match line := next(self._lines, EOFError):
            case str():
                return line
            case type():
                raise line
            case _:
                return line()


@pytest.fixture
def session(server: FakeOllama) -> Session:
    info = {"capabilities": ["completion"], "details": {"family": "llama"}, "system": "Be kind."}
    server.answers["POST /api/show"] = Answer(info)
    server.answers["POST /api/generate"] = Answer({"done": True, "done_reason": "load"})
    return Session(Client.from_environment(), "m", info)


@pytest.fixture
def talk(session: Session, capfd: pytest.CaptureFixture[str]) -> Iterator[Talk]:
    """`talk(*lines)`: what is on the terminal afterwards, without the lines. Ctrl-C then means what it did before."""
    before = signal.getsignal(signal.SIGINT)

    def run(*lines: Line) -> str:
        capfd.readouterr()
        Conversation(session, Typed(lines)).run()
        captured = capfd.readouterr()
        return captured.out + captured.err

    yield run
    assert signal.getsignal(signal.SIGINT) is before


def says(*texts: str, final: dict[str, Any] | None = None, **more: Any) -> Answer:
    lines: list[Any] = [{"message": {"role": "assistant", "content": text}, "done": False} for text in texts]
    if not more:
        lines.append({"message": {"role": "assistant", "content": ""}, "done": True} | (final or {}))
    return Answer(lines=lines, **more)


def asked(server: FakeOllama, route: str = "POST /api/chat") -> Any:
    return server.asked(route)[-1].json


def messages(server: FakeOllama) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in asked(server)["messages"]]


class TestTurns:
    def test_a_conversation_remembers(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/chat"] = [says("Hel", "lo"), says("Fine")]
        assert talk("hi", '"""one\ntwo"""', "  ") == "Hello\n\nFine\n\n"
        assert asked(server, "POST /api/generate") == {"model": "m", "stream": False}
        assert messages(server) == [("user", "hi"), ("assistant", "Hello"), ("user", "one\ntwo")]

    def test_every_request_is_asked_as_the_command_was(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        session.keep_alive, session.format, session.think = "1h", "json", "low"
        server.answers["POST /api/chat"] = says("{}")
        talk("hi")
        common = {"model": "m", "keep_alive": "1h", "format": "json", "think": "low"}
        assert asked(server, "POST /api/generate") == common | {"stream": False}
        assert asked(server) == common | {"messages": [{"role": "user", "content": "hi"}]}

    def test_messages_that_the_model_brings_are_shown(self, session: Session, talk: Talk) -> None:
        stored = [("system", "x"), ("user", "stored\x1b[2J"), ("assistant", "reply")]
        session.info["messages"] = [{"role": role, "content": content} for role, content in stored]
        assert talk() == ">>> stored[2J\nreply\n\n"

    def test_thoughts_are_remembered_apart(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        session.info["capabilities"].append("thinking")
        thought = {"message": {"role": "assistant", "content": "", "thinking": "Well"}, "done": False}
        server.answers["POST /api/chat"] = [says("Yes"), says("No")]
        server.answers["POST /api/chat"][0].lines.insert(0, thought)
        assert talk("hi", "sure?") == "Thinking...\nWell\n...done thinking.\n\nYes\n\nNo\n\n"
        assert asked(server)["think"] is True
        assert asked(server)["messages"][1] == {"role": "assistant", "content": "Yes", "thinking": "Well"}

    def test_statistics(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        session.verbose = True
        server.answers["POST /api/chat"] = says("Yes", final={"total_duration": 5_000_000})
        assert sorted(talk("hi").split("\n")) == ["", "", "Yes", "total duration:    5ms"]

    def test_a_model_that_does_not_load_is_no_conversation(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/generate"] = Answer({"error": '"m" does not support thinking'}, 400)
        with pytest.raises(ClientError, match="does not support thinking"):
            talk("hi")

    def test_an_error_leaves_the_conversation_where_it_was(self, server: FakeOllama, talk: Talk) -> None:
        busy, lost = Answer({"error": "server busy"}, 503), says("Half", cut=True)
        server.answers["POST /api/chat"] = [says("A"), busy, lost, says("C")]
        shown = talk("a", "b", "b", "c")
        assert "Error: server busy\n" in shown
        assert "Error: connection to the server was lost" in shown
        # Half an answer counts as said.
        expected = [("user", "a"), ("assistant", "A"), ("user", "b"), ("assistant", "Half"), ("user", "c")]
        assert messages(server) == expected

    def test_pictures_go_with_the_message_that_names_them(
        self, server: FakeOllama, session: Session, talk: Talk, tmp_path: Path
    ) -> None:
        picture = tmp_path / "cat.png"
        picture.write_bytes(b"\x89PNG\r\n\x1a\n")
        server.answers["POST /api/chat"] = says("A cat")
        assert f"Unknown command '{picture}'" in talk(f"{picture} what?")  # the model has no eyes
        assert server.asked("POST /api/chat") == []
        session.info["capabilities"].append("vision")
        assert f"Added image '{picture}'\n" in talk(f"{picture} what?")
        image = base64.b64encode(picture.read_bytes()).decode()
        assert asked(server)["messages"] == [{"role": "user", "content": "what?", "images": [image]}]
        picture.write_bytes(b"")
        assert f"Error: {picture} holds neither" in talk(f"{picture} what?")


class TestInterrupts:
    def interrupting(self, server: FakeOllama) -> None:
        """Presses Ctrl-C once the server waits, and waits for the client to leave."""

        def press() -> None:
            server.waiting.wait(TIMEOUT)
            wait_until_asleep(os.getpid())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press).start()

    @pytest.mark.parametrize(
        ("answer", "shown"),
        [
            (lambda: says("One, two", endless=True), "One, two\n\n"),
            (lambda: says(endless=True), "\n"),
            (lambda: Answer(silent=True), "\n"),
        ],
        ids=["while it answers", "before the first piece", "before the response"],
    )
    def test_the_answer_stops_and_nothing_else(
        self, server: FakeOllama, talk: Talk, answer: Callable[[], Answer], shown: str
    ) -> None:
        server.answers["POST /api/chat"] = [answer(), says("Yes")]
        self.interrupting(server)

        def then() -> str:
            assert server.client_left.wait(TIMEOUT)  # with no more help of ours: the request is closed by now
            return "still there?"

        assert talk("question", then) == f"{shown}Yes\n\n"
        # What was shown counts as said; a question without an answer is forgotten.
        before = [("user", "question"), ("assistant", "One, two")] if "One" in shown else []
        assert messages(server) == [*before, ("user", "still there?")]

    def test_cleaning_up_is_not_disturbed(self) -> None:
        done = []

        def work(interrupt: Interrupts) -> None:
            with interrupt.allowed():
                try:
                    signal.raise_signal(signal.SIGINT)
                finally:
                    signal.raise_signal(signal.SIGINT)
                    done.append("in the block")

        with interrupts() as interrupt:
            with pytest.raises(KeyboardInterrupt):
                work(interrupt)
            signal.raise_signal(signal.SIGINT)
            done.append("after it")
        assert done == ["in the block", "after it"]

    def test_a_key_pressed_a_moment_too_early_counts(self) -> None:
        with interrupts() as interrupt:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt), interrupt.allowed():
                raise AssertionError("not reached")

    def test_on_an_empty_line(self, talk: Talk) -> None:
        assert talk(KeyboardInterrupt) == "Use Ctrl + d or /bye to exit.\n"

    def test_in_a_command(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        server.answers["POST /api/create"] = Answer(silent=True)
        server.answers["POST /api/chat"] = says("Yes")
        self.interrupting(server)
        assert talk("/save x", "hi") == "\nYes\n\n"
        assert server.client_left.wait(TIMEOUT)

    def test_while_another_model_loads(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        server.answers["POST /api/generate"] = [Answer({"done": True}), Answer(silent=True)]
        server.answers["POST /api/chat"] = says("Yes")
        self.interrupting(server)
        talk("/load other", "hi")
        assert asked(server, "POST /api/generate")["model"] == "other"
        assert asked(server)["model"] == "m"


class TestCommands:
    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            ("/?", "Available Commands:\n  /set "),
            ("/help", "Available Commands:\n  /set "),
            ("/? set", "/set parameter NAME VALUE"),
            ("/set", "/set parameter NAME VALUE"),
            ("/? /show", "/show license"),
            ("/? shortcuts", "Ctrl + c"),
            ("/? nix", "Unknown command 'nix'. Type /? for help\n"),
            ("/show", "architecture    llama"),
            ("/show info", "architecture    llama"),
            ("/show system", "Be kind.\n"),
            ("/show license", "No license was specified for this model.\n"),
            ("/show parameters", "No parameters were specified for this model.\n"),
            ("/show nix", "Unknown command '/show nix'. Type /? for help\n"),
            ("/what ever", "Unknown command '/what'. Type /? for help\n"),
            ("/set nix", "Unknown command '/set nix'. Type /? for help\n"),
            ("/set parameter", "Usage: /set parameter NAME VALUE\n"),
            ("/set parameter seed", "Usage: /set parameter NAME VALUE\n"),
            ("/set parameter seed x", "Error: invalid int value [x]\n"),
            ("/set parameter seed 1 2", "Error: 'seed' takes one value\n"),
            ("/set parameter sed 1", "Error: unknown parameter 'sed'\n"),
            ("/set parameter mirostat 1", "'mirostat' has no effect any more.\n"),
            ("/set format", "Usage: /set format json\n"),
            ("/set format xml", "Error: a format is `json` or a JSON schema\n"),
            ("/set think", "Error: 'm' does not think\n"),
            ("/set think much", "Error: 'much' is no level of thinking"),
            ("/save", "Usage: /save NAME\n"),
            ("/load", "Usage: /load MODEL\n"),
        ],
    )
    def test_what_they_say(self, server: FakeOllama, talk: Talk, line: str, shown: str) -> None:
        assert shown in talk(line)
        assert server.asked("POST /api/chat") == []

    @pytest.mark.parametrize("line", ["/bye", "/exit", " /bye"])
    def test_leaving(self, server: FakeOllama, talk: Talk, line: str) -> None:
        server.answers["POST /api/chat"] = says("Yes")
        talk(line, "hi")
        assert (server.asked("POST /api/chat") == []) is not line.startswith(" ")

    @pytest.mark.parametrize(
        ("line", "field", "value"),
        [
            ("/set parameter temperature 0.5", "options", {"temperature": 0.5}),
            ('/set parameter stop a "b c"', "options", {"stop": ["a", "b c"]}),
            ("/set format json", "format", "json"),
            ('/set format {"type": "object"}', "format", {"type": "object"}),
            ("/set think", "think", True),
            ("/set think high", "think", "high"),
            ("/set nothink", "think", False),
        ],
    )
    def test_settings_of_requests(
        self, server: FakeOllama, session: Session, talk: Talk, line: str, field: str, value: object
    ) -> None:
        session.info["capabilities"].append("thinking")
        server.answers["POST /api/chat"] = says("Yes")
        assert "Error" not in talk(line, "hi")
        assert asked(server)[field] == value

    def test_settings_add_up_and_can_be_taken_back(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/chat"] = says("Yes")
        talk("/set parameter seed 1", "/set parameter top_k 2", "/set parameter seed 3", "/set format json", "hi")
        assert asked(server)["options"] == {"seed": 3, "top_k": 2}
        talk("/set noformat", "hi")
        assert "format" not in asked(server)

    def test_settings_of_the_display(self, session: Session, talk: Talk) -> None:
        editor = Typed(("/set nohistory", "/set verbose", "/set nowordwrap"))
        Conversation(session, editor).run()
        assert (editor.remembers, session.verbose, session.wrap) == (False, True, False)
        editor = Typed(("/set nohistory", "/set history", "/set quiet", "/set wordwrap"))
        Conversation(session, editor).run()
        assert (editor.remembers, session.verbose, session.wrap) == (True, False, True)

    def test_the_system_message(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/chat"] = [says("A"), says("B"), says("C")]
        talk('/set system """Be\nbrief."""', "a", "/clear", "b", "/show system", "/set system", "c")
        bodies = [request.json["messages"] for request in server.asked("POST /api/chat")]
        system = {"role": "system", "content": "Be\nbrief."}
        assert bodies[0] == [system, {"role": "user", "content": "a"}]
        assert bodies[1] == [system, {"role": "user", "content": "b"}]  # it stays when all else is forgotten
        assert asked(server, "POST /api/show") == {"model": "m", "system": "Be\nbrief."}
        assert [message["role"] for message in bodies[2]] == ["user", "assistant", "user"]

    def test_show_knows_what_was_set(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/show"] = Answer({"parameters": "seed  1\n", "license": "\x1b]0;x\x07MIT"})
        assert talk("/set parameter seed 1", "/show parameters").endswith("seed  1\n\n")
        assert asked(server, "POST /api/show") == {"model": "m", "options": {"seed": 1}}
        assert talk("/show license") == "]0;xMIT\n\n"

    def test_clear(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/chat"] = [says("A"), says("B")]
        assert talk("first", "/clear", "second") == "A\n\nCleared the conversation\nB\n\n"
        assert messages(server) == [("user", "second")]

    def test_list(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["GET /api/tags"] = Answer({"models": [{"name": "m:latest", "digest": "abc", "size": 5}]})
        assert talk("/list") == "NAME        ID     SIZE    MODIFIED\nm:latest    abc    5 B     Never\n"

    def test_load(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        other = {"capabilities": ["completion", "thinking"], "messages": [{"role": "user", "content": "hello"}]}
        server.answers["POST /api/show"] = Answer(other)
        server.answers["POST /api/chat"] = [says("A"), says("B")]
        assert talk("/set parameter seed 1", "a", "/load other", "b").endswith("Loaded model 'other'\n>>> hello\nB\n\n")
        options = {"seed": 1}
        assert asked(server, "POST /api/generate") == {
            "model": "other",
            "think": True,
            "options": options,
            "stream": False,
        }
        assert asked(server) == {
            "model": "other",
            "think": True,
            "options": options,
            "messages": [{"role": "user", "content": "b"}],
        }

    def test_a_model_that_cannot_be_loaded_changes_nothing(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/chat"] = [says("A"), says("B"), says("C")]
        server.answers["POST /api/generate"] = [Answer({"done": True}), Answer({"error": "no memory"}, 500)]
        server.answers["POST /api/show"] = [Answer({"error": "model 'nix' not found"}, 404), Answer({})]
        shown = talk("a", "/load nix", "b", "/load large", "c")
        assert "Error: model 'nix' not found; 'trio-ollama pull nix' fetches it\n" in shown
        assert "Error: no memory\n" in shown
        assert asked(server)["model"] == "m"
        assert messages(server) == [("user", "a"), ("assistant", "A"), ("user", "b"), ("assistant", "B"), ("user", "c")]

    def test_save(self, server: FakeOllama, session: Session, talk: Talk) -> None:
        session.info["messages"] = [{"role": "user", "content": "stored"}]
        session.messages.append({"role": "user", "content": "seen", "images": ["AAAA"]})
        server.answers["POST /api/chat"] = says("A")
        server.answers["POST /api/create"] = Answer(lines=[{"status": "success"}])
        shown = talk("/set system Be brief.", "/set parameter seed 1", "a", "/save mine")
        assert shown.endswith("Created new model 'mine'\n")
        assert asked(server, "POST /api/create") == {
            "model": "mine",
            "from": "m",
            "system": "Be brief.",
            "parameters": {"seed": 1},
            "messages": [
                {"role": "user", "content": "stored"},
                {"role": "user", "content": "seen"},
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "A"},
            ],
        }

    def test_save_of_nothing_new(self, server: FakeOllama, talk: Talk) -> None:
        server.answers["POST /api/create"] = Answer(lines=[{"error": "invalid model name"}])
        assert "Error: invalid model name ([HOST/]" in talk("/save a b")
        assert asked(server, "POST /api/create") == {"model": "a b", "from": "m"}
