"""POST /api/stop: in good order or at once, and what it says of it."""

from __future__ import annotations

import pytest

from trio_ollama.scheduler import RunnerView

from .conftest import Daemon, nothing_started


def loaded(daemon: Daemon, key: str, *, state: str = "ready", leases: int = 2) -> None:
    daemon.scheduler.views = (
        RunnerView(3, key, "tiny:latest", state, 77, 4096, 1000, 0, 60, leases),
        RunnerView(4, "/another", "other:latest", "ready", 78, 4096, 1000, 0, 60, 1),
    )


def key_of(daemon: Daemon) -> str:
    model = daemon.store.resolve(next(entry.name for entry in daemon.store.list() if entry.name.model == "tiny"))
    return str(model.weights_path)


@pytest.mark.parametrize("body", [{}, {"mode": "drain"}])
async def test_in_good_order(daemon: Daemon, body: dict[str, str]) -> None:
    loaded(daemon, key_of(daemon))
    answer = await daemon.post("/api/stop", {"model": "tiny", **body})
    assert (answer.status, answer.json) == (
        200,
        {
            "model": "tiny",
            "mode": "drain",
            "stopped": [{"generation": 3, "state": "ready", "pid": 77, "requests": 2}],
            "message": "tiny takes no more requests, and goes when those it has are done: 2",
        },
    )
    assert (daemon.scheduler.stopped, daemon.scheduler.forced) == ([key_of(daemon)], [])


async def test_at_once(daemon: Daemon) -> None:
    loaded(daemon, key_of(daemon), state="loading", leases=0)
    answer = await daemon.post("/api/stop", {"name": "TINY:latest", "mode": "force"})
    assert answer.status == 200
    assert answer.json["model"] == "TINY:latest"
    assert answer.json["stopped"] == [{"generation": 3, "state": "loading", "pid": 77, "requests": 0}]
    assert answer.json["message"] == "TINY:latest is stopped; requests that get an error for it: 0"
    assert (daemon.scheduler.stopped, daemon.scheduler.forced) == ([], [key_of(daemon)])


@pytest.mark.parametrize("mode", ["drain", "force"])
async def test_what_is_not_loaded(daemon: Daemon, mode: str) -> None:
    answer = await daemon.post("/api/stop", {"model": "tiny", "mode": mode})
    assert answer.status == 200
    assert answer.json == {"model": "tiny", "mode": mode, "stopped": [], "message": "tiny is not loaded"}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "model is required"),
        ({"model": "a:b:c/"}, 400, "invalid model name"),
        ({"model": "nobody"}, 404, "model 'nobody' not found"),
        ({"model": "tiny", "mode": "now"}, 400, "field \"mode\": Invalid enum value 'now'"),
    ],
)
async def test_wrong(daemon: Daemon, body: dict[str, str], status: int, text: str) -> None:
    with nothing_started(daemon.scheduler):
        answer = await daemon.post("/api/stop", body)
    assert (answer.status, answer.json) == (status, {"error": text})
    assert (daemon.scheduler.stopped, daemon.scheduler.forced) == ([], [])
