"""`stop`, `cp`, `rm`, versions and help, and what every command does when things go wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli import ALIASES, COMMANDS, main
from trio_ollama.settings import VARIABLES


def test_stop_is_an_empty_prompt_kept_for_no_time(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/generate"] = Answer({"done": True, "done_reason": "unload"})
    result = invoke("stop", "smollm2")
    assert (result.exit_code, result.output) == (0, "")
    assert server.requests[0].json == {"model": "smollm2", "keep_alive": 0, "stream": False}


def test_stop_says_what_it_cannot_find(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/generate"] = Answer({"error": "model 'no' not found"}, 404)
    result = invoke("stop", "no")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: couldn't find model \"no\" to stop (see 'trio-ollama ps')\n"


def test_cp(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/copy"] = Answer()
    assert invoke("cp", "a", "b:c").output == "copied 'a' to 'b:c'\n"
    assert server.requests[0].json == {"source": "a", "destination": "b:c"}


def test_rm_unloads_then_deletes_and_stops_at_the_first_error(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/generate"] = [
        Answer({"done": True}),
        Answer({"error": "busy"}, 503),
        Answer({"error": "model 'c' not found"}, 404),
    ]
    server.answers["DELETE /api/delete"] = [Answer(), Answer(), Answer({"error": "model 'c' not found"}, 404)]
    result = invoke("rm", "a", "b", "c", "d")
    assert result.exit_code == 1
    assert result.stdout == "deleted 'a'\ndeleted 'b'\n"
    assert result.stderr == (
        "Warning: unable to stop model 'b'\n"
        "Error: model 'c' not found (see 'trio-ollama list'); not removed either: d\n"
    )
    assert [request.json["model"] for request in server.requests] == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize(
    "arguments", [("list",), ("ps",), ("show", "m"), ("run", "m", "hi"), ("rm", "m"), ("stop", "m")]
)
def test_a_server_that_is_down(monkeypatch: pytest.MonkeyPatch, invoke: Invoke, arguments: tuple[str, ...]) -> None:
    with FakeOllama.running() as fake:
        monkeypatch.setenv("OLLAMA_HOST", fake.address)  # free again after this block
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: could not connect to ollama server, run 'trio-ollama serve' to start it "
        f"(nothing listens at http://{fake.address}, as OLLAMA_HOST says)\n"
    )


def test_errors_are_one_line_whatever_their_form(server: FakeOllama, invoke: Invoke) -> None:
    url = f"http://{server.address}"
    for answer, text in (
        (Answer({"error": "model 'm' not found"}, 404), "model 'm' not found (see 'trio-ollama list')"),
        (
            Answer({"error": "invalid model name"}, 400),
            "invalid model name ([HOST/][NAMESPACE/]MODEL[:TAG], each of letters, digits and '.', '_', '-')",
        ),
        (Answer({"error": {"message": "first\nsecond"}}, 400), "first second"),
        (Answer("404 page not found\n", 404), f"{url} has no such route: 404 page not found"),
        (Answer("Bad Gateway", 502), "Bad Gateway"),
        (Answer(None, 403), "403 Forbidden"),
        (Answer("<html>", 200), f"{url} is no Ollama server: its answer is a web page (check OLLAMA_HOST)"),
        (
            Answer("<!doctype html>", 502),
            f"{url} is no Ollama server: its answer is a web page, 502 Bad Gateway (check OLLAMA_HOST)",
        ),
        (
            Answer("hello", 200),
            f"{url} is no Ollama server: its answer is no JSON object but 'hello' (check OLLAMA_HOST)",
        ),
        (
            Answer(None, 302),
            f"{url} is no Ollama server: its answer is a redirect to nowhere (check OLLAMA_HOST)",
        ),
    ):
        server.answers["POST /api/show"] = answer
        result = invoke("show", "m")
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {text}\n")


def test_a_wrong_address_is_mentioned(monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://localhost:99999999")
    monkeypatch.setenv("OLLAMA_ORIGINS", "a mistake of the daemon's")
    result = invoke("cp", "a", "b")
    assert "Warning: OLLAMA_HOST: invalid port" in result.stderr
    assert "OLLAMA_ORIGINS" not in result.stderr


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("http://a b", "could not connect to http://a b: no host has such a name (check OLLAMA_HOST)"),
        ("http://a..b", "could not connect to http://a..b: no host has such a name (check OLLAMA_HOST)"),
    ],
)
def test_addresses_that_cannot_be(monkeypatch: pytest.MonkeyPatch, invoke: Invoke, address: str, error: str) -> None:
    monkeypatch.setenv("OLLAMA_HOST", address)
    result = invoke("ps")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {error.replace(address, f'{address}:80')}\n"


def test_https_where_none_is_spoken(server: FakeOllama, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"https://{server.address}"
    monkeypatch.setenv("OLLAMA_HOST", url)
    result = invoke("ps")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: could not connect to {url}: no HTTPS is spoken there (check OLLAMA_HOST)\n"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0-Server\r\n", "{} is no Ollama server: its answer is no HTTP (check OLLAMA_HOST)"),
        (b"", "connection to the server was lost: it closed it without an answer (its log may say why)"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
            "connection to the server was lost: its answer broke off (its log may say why)",
        ),
    ],
)
def test_servers_of_other_kinds(monkeypatch: pytest.MonkeyPatch, invoke: Invoke, answer: bytes, error: str) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv("OLLAMA_HOST", url)
        thread = threading.Thread(target=serve)
        thread.start()
        result = invoke("ps")
        thread.join(30)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {error.format(url)}\n")


def test_a_path_in_the_address_is_put_in_front(
    server: FakeOllama, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"{server.address}/proxy/")
    server.answers["POST /proxy/api/copy"] = Answer()
    assert invoke("cp", "a", "b").exit_code == 0


def test_every_command_is_found_and_listed(invoke: Invoke) -> None:
    overview = invoke("--help").output
    for name, meaning in COMMANDS.items():
        assert f"  {name} " in overview
        assert meaning in overview
        assert invoke(name, "--help").exit_code == 0
    for alias, name in ALIASES.items():
        assert main.get_command(main.make_context("x", ["--"], resilient_parsing=True), alias) is not None, name
    assert invoke("nonsense").exit_code == 2


def test_serve_help_names_every_variable(invoke: Invoke) -> None:
    output = invoke("serve", "--help").output
    words = " ".join(output.split())
    for variable in VARIABLES:
        assert f"{variable.name} " in output
        assert f"(default: {variable.default})" in words


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], ("trio", "quart", "rich", "http.client", "json", "trio_ollama.settings")),
        (
            ["ps"],
            ("trio", "quart", "rich", "httpx2", "prompt_toolkit", "msgspec", "gguf", "numpy", "trio_ollama.models"),
        ),
        (["pull", "m"], ("trio", "quart", "rich", "httpx2", "prompt_toolkit", "msgspec", "gguf", "numpy")),
    ],
)
def test_nothing_heavy_is_imported_in_vain(server: FakeOllama, arguments: list[str], heavy: tuple[str, ...]) -> None:
    server.answers = {"GET /api/ps": Answer({"models": []}), "POST /api/pull": Answer(lines=[{"status": "success"}])}
    code = (
        "import sys; from trio_ollama.cli import main\n"
        f"try: main({arguments})\n"
        "except SystemExit as end: assert not end.code\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
