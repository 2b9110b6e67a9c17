"""The small routes, and what stands round all of them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import trio_ollama
from trio_ollama.scheduler import FOREVER, RunnerView

from .conftest import Daemon


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_root(daemon: Daemon, method: str) -> None:
    answer = await daemon.send(method, "/")
    assert (answer.status, answer.text) == (200, "Ollama is running")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_version(daemon: Daemon, method: str) -> None:
    answer = await daemon.send(method, "/api/version")
    assert answer.json == {"version": "0.33.0", "trio_ollama": trio_ollama.__version__}


async def test_cloud_status(daemon: Daemon) -> None:
    answer = await daemon.send("GET", "/api/status")
    assert answer.json == {"cloud": {"disabled": True, "source": "config"}}


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("POST", "/api/me", "accounts are unavailable"),
        ("POST", "/api/signout", "accounts are unavailable"),
        ("DELETE", "/api/user/keys/abc", "accounts are unavailable"),
        ("POST", "/api/experimental/web_search", "web search is unavailable"),
        ("POST", "/api/experimental/web_fetch", "web fetch is unavailable"),
        ("GET", "/api/experimental/model-recommendations", "model recommendations are unavailable"),
    ],
)
async def test_what_needs_an_account_in_the_cloud(daemon: Daemon, method: str, path: str, what: str) -> None:
    answer = await daemon.send(method, path)
    assert (answer.status, answer.json) == (403, {"error": f"ollama cloud is disabled: {what}"})


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/nowhere", 404, "404 page not found"),
        ("POST", "/v1/nowhere", 404, "404 page not found"),
        ("POST", "/v1/systemone", 404, "404 page not found"),
        ("POST", "/v1/messages/batches", 404, "404 page not found"),
        ("GET", "/api/chat", 405, "405 method not allowed"),
        ("DELETE", "/api/tags", 405, "405 method not allowed"),
        ("GET", "/v1/chat/completions", 405, "405 method not allowed"),
    ],
)
async def test_no_such_route(daemon: Daemon, method: str, path: str, status: int, text: str) -> None:
    answer = await daemon.send(method, path)
    assert (answer.status, answer.text) == (status, text)
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/tags/", 301), ("POST", "/api/chat/", 307)])
async def test_a_trailing_slash(daemon: Daemon, method: str, path: str, status: int) -> None:
    answer = await daemon.send(method, path)
    assert (answer.status, answer.headers["location"]) == (status, path[:-1])


async def test_guards_stand_before_every_route(daemon: Daemon) -> None:
    for headers in ([("host", "evil.example")], [("origin", "https://evil.example")]):
        answer = await daemon.send("GET", "/api/tags", headers=headers)
        assert (answer.status, answer.body) == (403, b"")


def view(name: str, expires_in: int, *, state: str = "ready", gpu_bytes: int = 0) -> RunnerView:
    return RunnerView(1, f"/{name}", name, state, 1, 4096, 1000, gpu_bytes, expires_in, 0)


async def test_nothing_is_loaded(daemon: Daemon) -> None:
    assert (await daemon.send("GET", "/api/ps")).json == {"models": []}


async def test_what_is_loaded(daemon: Daemon) -> None:
    minute = 60 * 10**9
    daemon.scheduler.views = (
        view("tiny:latest", minute, gpu_bytes=400),
        view("gone:latest", -1, state="draining"),
        view("thinker:latest", FOREVER),
        view("bare:latest", 0),
    )
    answer = await daemon.send("GET", "/api/ps")
    models = answer.json["models"]
    assert [model["name"] for model in models] == ["thinker:latest", "tiny:latest", "bare:latest", "gone:latest"]
    now = datetime.now().astimezone()
    left = [datetime.fromisoformat(model["expires_at"]) - now for model in models]
    assert left[0] > timedelta(days=290 * 365)
    assert timedelta(seconds=50) < left[1] <= timedelta(seconds=60)
    # Only a model that is on its way out may show a time in the past when it is told.
    assert left[2] > left[3]
    tiny = models[1]
    assert tiny["digest"] == daemon.store.resolve("tiny").digest
    assert (tiny["size"], tiny["size_vram"], tiny["context_length"]) == (1000, 400, 4096)
    assert tiny["details"] == {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": None,
        "parameter_size": "100K",
        "quantization_level": "F32",
    }
    assert models[3]["digest"] == ""
