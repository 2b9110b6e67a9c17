"""`push`: what is asked for, where the model is then, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.commands.push import place
from trio_ollama.models.names import ModelName

OBJECTS: list[dict[str, Any]] = [
    {"status": "retrieving manifest"},
    {"status": "pushing 0123456789ab", "digest": "sha256:0123456789ab", "total": 5, "completed": 5},
    {"status": "pushing manifest"},
    {"status": "success"},
]
STEPS = "retrieving manifest\npushing 0123456789ab\npushing manifest\nsuccess\n"


def test_it_says_where_the_model_is(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/push"] = Answer(lines=OBJECTS)
    result = invoke("push", "me/mine")
    assert (result.exit_code, result.stderr) == (0, STEPS)
    assert result.stdout == "\nYou can find your model at:\n\n\thttps://ollama.com/me/mine\n"
    assert server.requests[0].json == {"model": "me/mine"}
    invoke("push", "localhost:5000/me/mine", "--insecure")
    assert server.requests[1].json == {"model": "localhost:5000/me/mine", "insecure": True}


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("me/mine:latest", "https://ollama.com/me/mine"),
        ("me/mine:7b", "https://ollama.com/me/mine:7b"),
        ("registry.ollama.com/me/mine", "https://ollama.com/me/mine"),
        ("localhost:5000/me/mine", "localhost:5000/me/mine:latest"),
    ],
)
def test_places(name: str, where: str) -> None:
    assert place(ModelName.parse(name)) == where


@pytest.mark.parametrize("text", ["access denied", "push model: 401: Unauthorized"])
def test_who_may_not_is_told_what_to_do(server: FakeOllama, invoke: Invoke, text: str) -> None:
    server.answers["POST /api/push"] = Answer(lines=[*OBJECTS[:1], {"error": text}])
    result = invoke("push", "other/mine")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "Error: you are not authorized to push to this namespace, create the model under a namespace you own"
    )


def test_a_model_that_is_not_here(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/push"] = Answer(lines=[*OBJECTS[:1], {"error": "model 'no:latest' not found"}])
    result = invoke("push", "no")
    assert result.stderr.splitlines()[-1] == "Error: model 'no:latest' not found (see 'trio-ollama list')"


def test_a_stream_that_ends_too_early_is_no_success(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/push"] = Answer(lines=OBJECTS[:2])
    result = invoke("push", "me/mine")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "Error: the server ended before all was sent: push 'me/mine' again to go on"
    )
