"""A model is read once, and again as soon as anything about it has changed."""

from __future__ import annotations

from typing import Any

import pytest

from trio_ollama.models.store import Store

from .conftest import AddModel, Daemon

GENERATE: dict[str, Any] = {"model": "own", "prompt": "hi"}


async def test_a_model_is_read_once(daemon: Daemon, add_model: AddModel, monkeypatch: pytest.MonkeyPatch) -> None:
    add_model("own", system="Be kind.")
    read = []
    load = Store.load
    monkeypatch.setattr(Store, "load", lambda self, entry: read.append(entry) or load(self, entry))
    for _ in range(3):
        assert (await daemon.post("/api/generate", GENERATE)).status == 200
    assert len(read) == 1


async def test_a_new_manifest_is_seen_at_once(daemon: Daemon, add_model: AddModel) -> None:
    for system in ("Be kind.", "Be brief."):
        add_model("own", system=system)
        await daemon.post("/api/generate", GENERATE)
        _, body = daemon.scheduler.calls[-1]
        assert body["messages"][0]["content"] == system


async def test_each_request_gets_its_own_spelling_back(daemon: Daemon, add_model: AddModel) -> None:
    add_model("own")
    for given in ("own", "own:latest", "OWN"):
        answer = await daemon.post("/api/generate", GENERATE | {"model": given, "stream": False})
        assert answer.json["model"] == given


async def test_removed_weights_are_noticed(daemon: Daemon, add_model: AddModel) -> None:
    name = add_model("own")
    await daemon.post("/api/generate", GENERATE)
    weights = daemon.store.resolve(name).weights_path
    assert weights is not None
    weights.unlink()
    read = daemon.scheduler.demands.copy()
    daemon.app.extensions["trio_ollama"].metadata._kept.clear()
    answer = await daemon.post("/api/generate", GENERATE)
    assert answer.status >= 400
    assert daemon.scheduler.demands == read
