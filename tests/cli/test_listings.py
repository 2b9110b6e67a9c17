"""`list`, `ps` and `show`: what they ask for, and of what they tell. How it looks: `test_golden`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.support.fake_ollama import Answer, FakeOllama
from trio_ollama.cli.commands.show import summary

DIGEST = "0123456789abcdef" * 4

TAGS: list[dict[str, Any]] = [
    {
        "name": "smollm2:latest",
        "digest": DIGEST,
        "size": 98_362_932,
        "modified_at": "2026-05-01T13:57:58.123456789+02:00",
    },
    {"name": "Mine/llama:8b", "digest": "f" * 64, "size": 4_661_211_808, "modified_at": "2026-04-10T12:00:00Z"},
    {"name": "far:cloud", "digest": "a" * 64, "size": 400, "modified_at": "0001-01-01T00:00:00Z", "remote_model": "x"},
]

LOADED: list[dict[str, Any]] = [
    {
        "name": "smollm2:latest",
        "digest": DIGEST,
        "size": 261_000_000,
        "size_vram": 0,
        "context_length": 4096,
        "expires_at": "2026-05-01T12:04:30Z",
    },
    {
        "name": "llama:8b",
        "digest": "f" * 64,
        "size": 6_000_000_000,
        "size_vram": 4_500_000_000,
        "context_length": 32768,
        "expires_at": "2318-08-11T12:00:00Z",
    },
    {
        "name": "gone:latest",
        "digest": "a" * 64,
        "size": 5,
        "size_vram": 5,
        "context_length": 1,
        "expires_at": "2026-05-01T11:59:59Z",
    },
]


def test_empty_listings_are_their_headers(server: FakeOllama, invoke: Invoke) -> None:
    server.answers = {"GET /api/tags": Answer({"models": []}), "GET /api/ps": Answer({"models": None})}
    assert invoke("list").output == "NAME    ID    SIZE    MODIFIED\n"
    assert invoke("ps").output == "NAME    ID    SIZE    PROCESSOR    CONTEXT    UNTIL\n"
    assert [json.loads(invoke(name, "--json").output) for name in ("list", "ps")] == [[], []]


@pytest.mark.parametrize(
    ("arguments", "route", "models", "names"),
    [
        (("ls", "mine/"), "GET /api/tags", TAGS, ["Mine/llama:8b"]),
        (("list",), "GET /api/tags", TAGS, ["smollm2:latest", "Mine/llama:8b", "far:cloud"]),
        (("ps", "smol"), "GET /api/ps", LOADED, ["smollm2:latest"]),
        (("ps", "SMOL"), "GET /api/ps", LOADED, []),
    ],
)
def test_prefixes_and_json(
    server: FakeOllama,
    invoke: Invoke,
    arguments: tuple[str, ...],
    route: str,
    models: list[dict[str, Any]],
    names: list[str],
) -> None:
    server.answers[route] = Answer({"models": models})
    wanted = [model for model in models if model["name"] in names]
    assert json.loads(invoke(*arguments, "--json").output) == wanted
    assert [line.split()[0] for line in invoke(*arguments).output.splitlines()[1:]] == names


SHOWN: dict[str, Any] = {
    "details": {"family": "llama", "parameter_size": "134.52M"},
    "model_info": {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b"]},
    "parameters": "num_ctx                        2048",
    "system": "You are terse.",
    "license": "MIT",
    "modelfile": "FROM /blobs/sha256-0\n",
    "template": "{{ .Prompt }}",
}


def test_show_asks_for_what_it_prints(server: FakeOllama, invoke: Invoke) -> None:
    server.answers["POST /api/show"] = Answer(SHOWN)
    assert invoke("show", "smollm2").output == summary(SHOWN)
    assert invoke("show", "smollm2", "-v").output == summary(SHOWN, verbose=True)
    assert json.loads(invoke("show", "smollm2", "--json").output) == SHOWN
    assert [request.json["verbose"] for request in server.requests] == [False, True, False]


@pytest.mark.parametrize("part", ["license", "modelfile", "parameters", "system", "template"])
def test_show_one_part(server: FakeOllama, invoke: Invoke, part: str) -> None:
    server.answers["POST /api/show"] = Answer(SHOWN)
    assert invoke("show", "smollm2", f"--{part}").output == SHOWN[part] + "\n"


def test_show_refuses_two_parts(server: FakeOllama, invoke: Invoke) -> None:
    result = invoke("show", "smollm2", "--license", "--system")
    assert result.exit_code == 2
    assert "only one of --license, --modelfile, --parameters, --system, --template" in result.stderr
    assert server.requests == []


def test_now_is_the_real_now(server: FakeOllama, invoke: Invoke) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=150)).isoformat()
    server.answers["GET /api/ps"] = Answer({"models": [LOADED[0] | {"expires_at": soon}]})
    assert "2 minutes from now" in invoke("ps").output
