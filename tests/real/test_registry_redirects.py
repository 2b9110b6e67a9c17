"""A registry behind a server that sends requests on, with 307, to another one on the same files.

The first asks for tokens, which the second must not see.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tests.support.docker_registry import NO_REGISTRY, DockerRegistry, find_docker_registry
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.proxy_faults import Answer, Exchange, Fault
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import Published, noise, same_bytes, transfer
from tests.support.store_fixture import OllamaStore

SIZE = 300_000
UPLOADS = "/blobs/uploads/"
BLOB = "/blobs/sha256:"
MANIFEST = "/manifests/"

SENT_ON = {
    "begin": [("POST", UPLOADS)],
    "body": [("PATCH", UPLOADS)],
    "end": [("PUT", UPLOADS)],
    "look": [("HEAD", BLOB)],
    "fetch": [("GET", BLOB)],
    "manifest": [("GET", MANIFEST), ("PUT", MANIFEST)],
    "all": [("POST", UPLOADS), ("HEAD", BLOB), ("GET", BLOB), ("GET", MANIFEST), ("PUT", MANIFEST)],
}
"""By the name of a model, which of its requests the first server does not answer."""


@dataclass
class Both:
    first: FaultProxy
    second: FaultProxy
    files: DockerRegistry
    """Either registry has them."""

    def sent_on(self, method: str, path: str) -> None:
        """Have the first server send such requests on."""
        self.first.add(Fault(path, method, times=math.inf, answer=self._there))

    def _there(self, exchange: Exchange) -> Answer:
        return Answer(307, headers={"Location": f"{self.second.url}{exchange.path}"})


def token(_: Exchange) -> Answer:
    return Answer(200, json.dumps({"token": "a token"}).encode())


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    if find_docker_registry() is None:
        pytest.skip(NO_REGISTRY)
    async with fault_proxy() as first, fault_proxy() as second:
        first.add(Fault("^/token", times=math.inf, answer=token))
        closed = DockerRegistry(tmp_path / "closed", realm=f"{first.url}/token")
        open_one = DockerRegistry(tmp_path / "open")
        closed.files.mkdir()
        open_one.files.symlink_to(closed.files)
        with closed, open_one:
            first.upstream, second.upstream = closed.port, open_one.port
            yield Both(first, second, open_one)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RealDaemon]:
    with RealDaemon(tmp_path / "models", HOME=str(tmp_path)) as made:
        yield made


async def test_a_model_goes_there_and_comes_back(daemon: RealDaemon, both: Both, tmp_path: Path) -> None:
    """Whatever is sent on, with its method and its body, and without what signs us in."""
    own, kept = OllamaStore(daemon.store), OllamaStore(tmp_path / "kept")
    models: dict[str, Published] = {}
    for name, requests in SENT_ON.items():
        data = own.add(f"{both.first.host}/library/{name}:latest", noise(SIZE, name))
        models[name] = Published(f"library/{name}", data)
        for method, path in requests:
            both.sent_on(method, f"/{name}{path}")

    async def all_of_them(kind: str) -> None:
        ends: dict[str, object] = {}

        async def move(name: str) -> None:
            ends[name] = (await transfer(daemon.port, kind, f"{both.first.host}/library/{name}"))[-1]

        async with trio.open_nursery() as nursery:
            for name in models:
                nursery.start_soon(move, name)
        assert ends == {name: {"status": "success"} for name in models}

    await all_of_them("push")
    for model in models.values():
        assert both.files.manifest(model.repository) == model.manifest
        for layer in model.layers:
            file = layer["digest"].replace(":", "-")
            assert same_bytes(both.files.blob_path(layer["digest"]), own.blobs / file)
            (own.blobs / file).rename(kept.blobs / file)
    await all_of_them("pull")
    for model in models.values():
        model.check(daemon.store, both.first.host, kept)

    there = both.second.exchanges
    for name, requests in SENT_ON.items():
        for method, path in requests:
            assert any(one.method == method and f"/{name}{path}" in one.path for one in there), (name, method)
    assert not any("authorization" in one.headers for one in there)
    assert any(one.headers.get("authorization") == "Bearer a token" for one in both.first.exchanges)
