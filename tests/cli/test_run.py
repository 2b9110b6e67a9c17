"""One-shot `run`: prompts from arguments and pipes, thinking, formats, statistics, embeddings, errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.asleep import wait_until_asleep
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.statistics import statistics

FINAL: dict[str, Any] = {
    "response": "",
    "done": True,
    "done_reason": "stop",
    "total_duration": 1_500_000_000,
    "prompt_eval_count": 12,
    "prompt_eval_duration": 40_000_000,
    "eval_count": 5,
    "eval_duration": 250_000_000,
}


def pieces(*texts: str) -> list[dict[str, Any]]:
    return [{"response": text, "done": False} for text in texts]


def thoughts(*texts: str) -> list[dict[str, Any]]:
    return [{"response": "", "thinking": text, "done": False} for text in texts]


@pytest.fixture
def model(server: FakeOllama) -> FakeOllama:
    """A server with one completion model that says `Hello you`."""
    server.answers["POST /api/show"] = Answer({"capabilities": ["completion"]})
    server.answers["POST /api/generate"] = Answer(lines=[*pieces("Hello", " you"), FINAL])
    return server


def asked(server: FakeOllama) -> Any:
    return server.asked("POST /api/generate")[-1].json


def test_arguments_are_the_prompt(model: FakeOllama, invoke: Invoke) -> None:
    result = invoke("run", "m", "say", "hello")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello you\n", "")
    assert asked(model) == {"model": "m", "prompt": "say hello"}


def test_stdin_comes_before_the_arguments(model: FakeOllama, invoke: Invoke) -> None:
    invoke("run", "m", "sum", "up", stdin="a text\n")
    assert asked(model)["prompt"] == "a text\n sum up"
    invoke("run", "m", stdin="alone")
    assert asked(model)["prompt"] == "alone"


def test_what_is_given_is_sent(model: FakeOllama, invoke: Invoke) -> None:
    invoke("run", "m", "--keepalive", "1h", "--format", "json", "--think=low", "hi")
    assert asked(model) == {"model": "m", "prompt": "hi", "keep_alive": "1h", "format": "json", "think": "low"}
    invoke("run", "m", "--format", '{"type": "object"}', "--think", "hi")
    assert asked(model) == {"model": "m", "prompt": "hi", "format": {"type": "object"}, "think": True}
    invoke("run", "m", "--think=false", "--", "--think")
    assert asked(model) == {"model": "m", "prompt": "--think", "think": False}


def test_a_model_that_can_think_does(model: FakeOllama, invoke: Invoke) -> None:
    model.answers["POST /api/show"] = Answer({"capabilities": ["completion", "thinking"]})
    invoke("run", "m", "hi")
    assert asked(model)["think"] is True


@pytest.mark.parametrize("arguments", [("--think=much",), ("--format", "{no json")])
def test_wrong_values_are_refused_before_anything_is_asked(
    model: FakeOllama, invoke: Invoke, arguments: tuple[str, ...]
) -> None:
    assert invoke("run", "m", *arguments, "hi").exit_code == 2
    assert model.requests == []


def test_thinking_is_set_apart_or_hidden(model: FakeOllama, invoke: Invoke) -> None:
    model.answers["POST /api/generate"] = Answer(lines=[*thoughts("Well", "..."), *pieces("42\n"), FINAL])
    assert invoke("run", "m", "hi").stdout == "Thinking...\nWell...\n...done thinking.\n\n42\n"
    assert invoke("run", "m", "--hidethinking", "hi").stdout == "42\n"


def test_statistics(model: FakeOllama, invoke: Invoke) -> None:
    result = invoke("run", "m", "--verbose", "hi")
    assert result.stdout == "Hello you\n"
    assert result.stderr == (
        "total duration:          1.5s\n"
        "prompt eval count:       12 token(s)\n"
        "prompt eval duration:    40ms\n"
        "prompt eval rate:        300.00 tokens/s\n"
        "eval count:              5 token(s)\n"
        "eval duration:           250ms\n"
        "eval rate:               20.00 tokens/s\n"
    )
    assert statistics({"done": True, "load_duration": 2_000_000}) == "load duration:    2ms\n"
    assert statistics({"done": True}) == ""


def test_escape_sequences_of_the_model_reach_a_pipe_unchanged(model: FakeOllama, invoke: Invoke) -> None:
    model.answers["POST /api/generate"] = Answer(lines=[*pieces("\x1b[31mred\x1b[0m"), FINAL])
    assert invoke("run", "m", "hi").stdout == "\x1b[31mred\x1b[0m\n"


def test_an_error_in_the_stream_follows_what_came_before(model: FakeOllama, invoke: Invoke) -> None:
    model.answers["POST /api/generate"] = Answer(lines=[*pieces("Hel"), {"error": "the model was stopped"}])
    result = invoke("run", "m", "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "Hel\n", "Error: the model was stopped\n")


def test_a_stream_that_is_cut_is_an_error(model: FakeOllama, invoke: Invoke) -> None:
    model.answers["POST /api/generate"] = Answer(lines=pieces("Hel"), cut=True)
    result = invoke("run", "m", "hi")
    assert (result.exit_code, result.stdout) == (1, "Hel\n")
    assert result.stderr.startswith("Error: connection to the server was lost")


class TestAModelThatIsNotThere:
    ABSENT = Answer({"error": "model 'no:latest' not found"}, 404)

    def test_it_is_pulled_first(self, model: FakeOllama, invoke: Invoke) -> None:
        model.answers["POST /api/show"] = [self.ABSENT, Answer({"capabilities": ["completion"]})]
        model.answers["POST /api/pull"] = Answer(lines=[{"status": "pulling manifest"}, {"status": "success"}])
        result = invoke("run", "no", "--insecure", "hi")
        assert (result.exit_code, result.stdout) == (0, "Hello you\n")
        assert result.stderr == "pulling manifest\nsuccess\n"
        assert model.asked("POST /api/pull")[0].json == {"model": "no", "insecure": True}

    def test_nobody_has_it(self, server: FakeOllama, invoke: Invoke) -> None:
        server.answers["POST /api/show"] = self.ABSENT
        server.answers["POST /api/pull"] = Answer(lines=[{"error": "pull model manifest: file does not exist"}])
        result = invoke("run", "no", "hi")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("Error: pull model manifest: file does not exist")

    def test_its_name_was_mistyped(self, server: FakeOllama, invoke: Invoke) -> None:
        names = ("smollm2:latest", "smollm2:1.7b", "other:latest")
        server.answers["GET /api/tags"] = Answer({"models": [{"name": name} for name in names]})
        server.answers["POST /api/show"] = self.ABSENT
        server.answers["POST /api/pull"] = Answer(lines=[{"error": "pull model manifest: no network"}])
        result = invoke("run", "smolm2", "hi")
        assert result.stderr == "Error: pull model manifest: no network; did you mean 'smollm2' or 'smollm2:1.7b'?\n"
        assert "did you mean" not in invoke("run", "entirely", "hi").stderr

    def test_the_server_pulls_nothing(self, server: FakeOllama, invoke: Invoke) -> None:
        server.answers["POST /api/show"] = self.ABSENT
        result = invoke("run", "no", "hi")
        assert (result.exit_code, result.stderr) == (1, "Error: model 'no:latest' not found (see 'trio-ollama list')\n")


def test_other_errors_of_show_are_no_reason_to_pull(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/show"] = Answer({"error": "broken"}, 500)
    assert invoke("run", "m", "hi").stderr == "Error: broken\n"
    assert server.asked("POST /api/pull") == []


def test_pictures(server: FakeOllama, model: FakeOllama, invoke: Invoke, tmp_path: Path) -> None:
    model.answers["POST /api/show"] = Answer({"capabilities": ["completion", "vision"]})
    picture = tmp_path / "a.jpg"
    picture.write_bytes(b"\xff\xd8\xff")
    result = invoke("run", "m", "what", "is", f"{picture}?")
    assert (result.stdout, result.stderr) == ("Hello you\n", f"Added image '{picture}'\n")
    assert asked(model) == {"model": "m", "prompt": "what is ?", "images": ["/9j/"]}


def test_models_that_make_pictures(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/show"] = Answer({"capabilities": ["image"]})
    assert invoke("run", "m", "hi").stderr == "Error: 'm' makes images: this command shows text only\n"


def test_halves_of_a_character(model: FakeOllama, invoke: Invoke) -> None:
    model.answers["POST /api/generate"] = Answer(lines=[*pieces("a\ud83d", "\ude00", "\ud83d"), FINAL])
    assert invoke("run", "m", "hi").stdout == "a😀\ufffd\n"


def test_embedding_models_print_their_vector(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/show"] = Answer({"capabilities": ["embedding"]})
    server.answers["POST /api/embed"] = Answer({"embeddings": [[0.5, -0.25]]})
    assert json.loads(invoke("run", "e", "--dimensions", "2", "--no-truncate", "some text").stdout) == [0.5, -0.25]
    assert server.requests[-1].json == {"model": "e", "input": "some text", "truncate": False, "dimensions": 2}
    assert 'Usage: trio-ollama run e "your text here"' in invoke("run", "e").stderr


def test_ctrl_c_ends_the_request_and_leaves_quietly(model: FakeOllama) -> None:
    model.answers["POST /api/generate"] = Answer(lines=pieces("One"), endless=True)
    command = [sys.executable, "-m", "trio_ollama.cli", "run", "m", "count"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == "One"
        wait_until_asleep(process.pid)
        process.send_signal(signal.SIGINT)
        assert model.client_left.wait(10)
        assert process.communicate(timeout=10) == ("\n", "")
    assert process.returncode == 130


def test_neither_questions_nor_help_import_the_line_editor(model: FakeOllama) -> None:
    """It takes longer to import than all the rest."""
    code = (
        "import sys; from trio_ollama.cli import main; main({}, standalone_mode=False); assert {!r} not in sys.modules"
    )
    for arguments in (["run", "m", "hi"], ["run", "--help"], ["ps", "--help"]):
        program = code.format(arguments, "prompt_toolkit")
        assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL).returncode == 0


def test_what_an_encoding_lacks_does_not_end_the_answer(model: FakeOllama) -> None:
    model.answers["POST /api/generate"] = Answer(lines=[*pieces("a\u4f60b"), FINAL])
    command = [sys.executable, "-m", "trio_ollama.cli", "run", "m", "hi"]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"a?b\n", b"")


def test_a_reader_that_has_enough_ends_the_request(model: FakeOllama) -> None:
    model.answers["POST /api/generate"] = Answer(lines=pieces("One"), endless=True)
    command = [sys.executable, "-m", "trio_ollama.cli", "run", "m", "count"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert model.client_left.wait(10)
        assert process.stderr.read() == b""
