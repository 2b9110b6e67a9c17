"""The commands speak Ollama's public API and nothing else, so that they work against any server of it.

Those that need more, because Ollama has no such thing, are named here one by one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli import COMMANDS

PUBLIC: Final = re.compile(
    r"(GET|HEAD) (/|/api/tags|/api/ps|/api/version)"
    r"|POST /api/(generate|chat|embed|show|create|copy|pull|push)"
    r"|DELETE /api/delete"
    r"|(HEAD|POST) /api/blobs/sha256:[0-9a-f]{64}"
)
"""What the documentation of Ollama's API has."""
OURS: Final = {
    ("fit", "m"): "POST /api/fit",
    ("show", "m", "--memory"): "POST /api/fit",
    ("ps", "--requests"): "GET /api/requests",
    ("cancel", "a"): "DELETE /api/requests/a",
    ("stop", "m", "--force"): "POST /api/stop",
}
EVERY: Final = [
    ("-v",),
    ("run", "m", "hi"),
    ("run", "m", "hi", "--verbose", "--format", "json", "--keepalive", "1m", "--think=false", "--hidethinking"),
    ("run", "absent", "hi"),
    ("run", "vectors", "hi", "--truncate", "--dimensions", "2"),
    ("pull", "m"),
    ("pull", "m", "--insecure"),
    ("push", "me/m"),
    ("push", "me/m", "--insecure"),
    ("create", "m", "-f", "Modelfile", "-q", "q4_0"),
    ("list",),
    ("ls", "m"),
    ("list", "--json"),
    ("show", "m"),
    ("show", "m", "-v"),
    ("show", "m", "--json"),
    ("show", "m", "--license"),
    ("cp", "m", "n"),
    ("rm", "m", "n"),
    ("ps",),
    ("ps", "--json"),
    ("stop", "m"),
]
SUCCESS: Final = [{"status": "success"}]
SHOWN: Final[dict[str, Any]] = {"details": {}, "model_info": {}, "capabilities": ["completion"], "license": "MIT"}


class AnyModel(dict[str, "Answer | list[Answer]"]):
    """Answers as an Ollama does that has every model."""

    def get(self, route: str, default: Any = None) -> Any:
        if route.startswith("HEAD /api/blobs/"):
            return Answer(status=404)
        if route.startswith("POST /api/blobs/"):
            return Answer(status=201)
        return super().get(route, default)


@pytest.fixture
def ollama(server: FakeOllama) -> FakeOllama:
    server.answers = AnyModel(
        {
            "GET /api/version": Answer({"version": "0.12.0"}),
            "GET /api/tags": Answer({"models": []}),
            "GET /api/ps": Answer({"models": []}),
            "POST /api/show": Answer(SHOWN),
            "POST /api/generate": Answer(lines=[{"response": "x", "done": True}]),
            "POST /api/embed": Answer({"embeddings": [[1.0, 0.0]]}),
            "POST /api/pull": Answer(lines=SUCCESS),
            "POST /api/push": Answer(lines=SUCCESS),
            "POST /api/create": Answer(lines=SUCCESS),
            "POST /api/copy": Answer(),
            "DELETE /api/delete": Answer(),
        }
    )
    return server


@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
def test_public_routes_are_enough(
    ollama: FakeOllama,
    invoke: Invoke,
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Modelfile").write_text("FROM ./weights.gguf\nADAPTER ./weights.gguf\n")
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    if "absent" in arguments:
        ollama.answers["POST /api/show"] = [Answer({"error": "model 'absent' not found"}, 404), Answer(SHOWN)]
    if "vectors" in arguments:
        ollama.answers["POST /api/show"] = Answer(SHOWN | {"capabilities": ["embedding"]})
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    asked = {f"{each.method} {each.path}" for each in ollama.requests}
    assert asked
    assert not {route for route in asked if not PUBLIC.fullmatch(route)}


@pytest.mark.parametrize("arguments", OURS, ids=" ".join)
def test_what_needs_a_server_of_ours_says_so(ollama: FakeOllama, invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("it is no trio-ollama of today\n")
    assert result.stderr.count("\n") == 1
    assert [f"{each.method} {each.path}" for each in ollama.requests] == [OURS[arguments]]


def test_no_command_is_left_out() -> None:
    tried = {arguments[0] for arguments in [*EVERY, *OURS]} - {"-v", "ls"}
    assert tried == set(COMMANDS) - {"serve", "completion"}
