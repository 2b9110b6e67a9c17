"""Names that are empty, invalid or absent: each route has its own words, and none changes or loads anything."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Daemon, nothing_started

EMPTY, INVALID, ABSENT = "", "a:b:c/", "nobody"

CASES = [
    ("/api/generate", EMPTY, 404, "model '' not found"),
    ("/api/generate", INVALID, 400, "invalid model name"),
    ("/api/generate", ABSENT, 404, "model 'nobody' not found"),
    ("/api/chat", EMPTY, 400, "model is required"),
    ("/api/chat", INVALID, 400, "invalid model name"),
    ("/api/chat", ABSENT, 404, "model 'nobody' not found"),
    ("/api/embed", EMPTY, 404, "model '' not found"),
    ("/api/embed", INVALID, 400, "invalid model name"),
    ("/api/embed", ABSENT, 404, 'model "nobody" not found, try pulling it first'),
    ("/api/embeddings", EMPTY, 400, "model is required"),
    ("/api/embeddings", INVALID, 400, "invalid model name"),
    ("/api/embeddings", ABSENT, 404, 'model "nobody" not found, try pulling it first'),
    ("/api/show", EMPTY, 400, "model is required"),
    ("/api/show", INVALID, 400, "invalid model name"),
    ("/api/show", ABSENT, 404, "model 'nobody:latest' not found"),
    ("/api/delete", EMPTY, 400, "model is required"),
    ("/api/delete", INVALID, 400, f'name "{INVALID}" is invalid'),
    ("/api/delete", ABSENT, 404, "model 'nobody' not found"),
    ("/api/pull", EMPTY, 400, "invalid model name"),
    ("/api/pull", INVALID, 400, "invalid model name"),
    ("/api/push", EMPTY, 400, "model is required"),
    ("/api/push", INVALID, 400, "invalid model name"),  # DIFF: upstream begins a stream first
    ("/api/create", EMPTY, 400, "invalid model name"),
    ("/api/create", INVALID, 400, "invalid model name"),
    ("/api/stop", EMPTY, 400, "model is required"),
    ("/api/stop", INVALID, 400, "invalid model name"),
    ("/api/stop", ABSENT, 404, "model 'nobody' not found"),
]


@pytest.mark.parametrize(("path", "name", "status", "text"), CASES)
async def test_native_routes(daemon: Daemon, path: str, name: str, status: int, text: str) -> None:
    method, before = "DELETE" if path == "/api/delete" else "POST", daemon.store.list()
    with nothing_started(daemon.scheduler):
        answer = await daemon.send(method, path, {"model": name})
    assert (answer.status, answer.json) == (status, {"error": text})
    assert daemon.store.list() == before
    assert answer.headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize("path", ["/api/show", "/api/delete"])
async def test_the_old_name_for_model(daemon: Daemon, path: str) -> None:
    answer = await daemon.send("DELETE" if path == "/api/delete" else "POST", path, {"name": "tiny"})
    assert answer.status == 200


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"source": "a:b:c/", "destination": "x"}, 400, 'source "a:b:c/" is invalid'),
        ({"source": "", "destination": "x"}, 400, 'source "" is invalid'),
        ({"source": "tiny", "destination": ""}, 400, 'destination "" is invalid'),
        ({"source": "tiny", "destination": "a:b:c/"}, 400, 'destination "a:b:c/" is invalid'),
        ({"source": "nobody", "destination": "x"}, 404, 'model "nobody" not found'),
    ],
)
async def test_copy(daemon: Daemon, body: Any, status: int, text: str) -> None:
    answer = await daemon.post("/api/copy", body)
    assert (answer.status, answer.json) == (status, {"error": text})


async def test_openai_shape(daemon: Daemon) -> None:
    messages = [{"role": "user", "content": "hi"}]
    answer = await daemon.post("/v1/chat/completions", {"model": "nobody", "messages": messages})
    error = {"message": "model 'nobody' not found", "type": "not_found_error", "param": None, "code": None}
    assert (answer.status, answer.json) == (404, {"error": error})


async def test_retrieve_of_an_absent_model(daemon: Daemon) -> None:
    answer = await daemon.send("GET", "/v1/models/nobody")
    assert (answer.status, answer.json["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("big:cloud", 403, "ollama cloud is disabled: remote model is unavailable"),
        ("gpt-oss:120b-cloud", 403, "ollama cloud is disabled: remote model is unavailable"),
        ("x:local:cloud", 400, 'use either :local or :cloud, not both: "x:local:cloud"'),
    ],
)
async def test_models_in_the_cloud_are_refused(daemon: Daemon, name: str, status: int, text: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post("/api/chat", {"model": name})
    assert (answer.status, answer.json) == (status, {"error": text})


async def test_the_local_suffix_is_not_part_of_the_name(daemon: Daemon) -> None:
    answer = await daemon.post("/api/generate", {"model": "tiny:local", "prompt": "hi", "stream": False})
    assert (answer.status, answer.json["model"]) == (200, "tiny:local")
