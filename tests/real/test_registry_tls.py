"""Pull and push over HTTPS: a real registry with a certificate of an authority that SSL_CERT_FILE names.

Registries on loopback addresses are spoken to over plain HTTP. 0.0.0.0 is none of those, and leads to them.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import h11
import pytest
import trio

from tests.support.api_client import ApiClient, ask
from tests.support.byte_proxy import ByteProxy, byte_proxy
from tests.support.certificates import Authority
from tests.support.docker_registry import NO_REGISTRY, DockerRegistry, find_docker_registry
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import Published, noise, publish, same_bytes, transfer
from tests.support.store_fixture import OllamaStore
from tests.support.until import until

HOST: Final = "0.0.0.0"
FAR: Final = "registry.example"
"""Reached through a proxy alone."""
SIZE: Final = 40_000_000
"""Of weights that are fetched in three parts."""
PARTS: Final = 3
UNSAVED: Final = PARTS * 2_000_000
"""Bytes whose progress is not on the disk yet, whenever it is looked at."""
TLS: Final = 0.01
"""What encryption adds, of the bytes."""
SOON: Final = 1.0
"""Seconds. What takes milliseconds takes longer on a busy machine."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[DockerRegistry]:
    """One that speaks HTTPS."""
    if find_docker_registry() is None:
        pytest.skip(NO_REGISTRY)
    with DockerRegistry(tmp_path_factory.mktemp("registry"), certificate=authority.certificate(HOST, FAR)) as made:
        yield made


@pytest.fixture(scope="module")
def way_out() -> Iterator[socket.socket]:
    """Where the proxy of the daemon that tests share will be."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture(scope="module")
def trusting(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, way_out: socket.socket
) -> Iterator[RealDaemon]:
    """A daemon that tests share."""
    folder = tmp_path_factory.mktemp("trusting")
    variables = {
        "HOME": str(folder),
        "SSL_CERT_FILE": str(authority.file),
        "HTTPS_PROXY": f"http://127.0.0.1:{way_out.getsockname()[1]}",
        "NO_PROXY": HOST,
    }
    with RealDaemon(folder / "models", **variables) as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path, authority: Authority) -> Iterator[RealDaemon]:
    """One to kill."""
    with RealDaemon(tmp_path / "models", HOME=str(tmp_path), SSL_CERT_FILE=str(authority.file)) as made:
        yield made


@pytest.fixture
async def between(registry: DockerRegistry) -> AsyncIterator[ByteProxy]:
    async with byte_proxy(registry.port) as made:
        yield made


async def test_a_model_goes_there_and_comes_back(
    trusting: RealDaemon, registry: DockerRegistry, tmp_path: Path
) -> None:
    own = OllamaStore(trusting.store)
    name = f"{HOST}:{registry.port}/library/sent"
    model = Published("library/sent", own.add(f"{name}:latest", noise(5_000_000, "sent"), system="Be brief."))
    assert (await transfer(trusting.port, "push", name, insecure=False))[-1] == {"status": "success"}
    assert registry.manifest(model.repository) == model.manifest
    kept = OllamaStore(tmp_path / "kept")
    for layer in model.layers:
        file = layer["digest"].replace(":", "-")
        assert same_bytes(registry.blob_path(layer["digest"]), own.blobs / file)
        (own.blobs / file).rename(kept.blobs / file)
    own.manifest_path(f"{name}:latest").unlink()
    assert (await transfer(trusting.port, "pull", name, insecure=False))[-1] == {"status": "success"}
    model.check(trusting.store, f"{HOST}:{registry.port}", kept)


async def test_through_a_proxy(
    trusting: RealDaemon, registry: DockerRegistry, way_out: socket.socket, tmp_path: Path
) -> None:
    """HTTPS within what the proxy leads on; the name is what the certificate is for."""
    source = OllamaStore(tmp_path / "source")
    model = publish(registry, source, "far", noise(1_000_000, "far"))
    async with byte_proxy(registry.port, sock=way_out, asked=True) as proxy:
        records = await transfer(trusting.port, "pull", f"{FAR}/library/far", insecure=False)
    assert records[-1] == {"status": "success"}
    model.check(trusting.store, FAR, source)
    assert set(proxy.wishes) == {f"CONNECT {FAR}:443 HTTP/1.1"}


def saved(daemon: RealDaemon, model: Published) -> int:
    """Bytes of the weights that the part files speak of."""
    files = list((daemon.store / "blobs").glob(f"{model.weights.replace(':', '-')}-partial-*"))
    assert len(files) == PARTS
    return sum(json.loads(path.read_bytes())["Completed"] for path in files)


async def begun(client: ApiClient, name: str, until: int) -> None:
    """A pull of which so many bytes have come."""
    await client.post("/api/pull", model=name)
    assert await client.status() == 200
    completed = 0
    while completed < until:
        record = await client.record()
        assert record is not None
        assert "error" not in record
        completed = record.get("completed", 0)


async def test_a_pull_that_is_left_and_one_that_is_killed(
    daemon: RealDaemon, registry: DockerRegistry, between: ByteProxy, tmp_path: Path
) -> None:
    """In the middle of a body. Its connections end at once, and what has come is not fetched again."""
    source = OllamaStore(tmp_path / "source")
    model = publish(registry, source, "large", noise(SIZE, "large"))
    name = f"{HOST}:{between.port}/library/large"
    between.allow(SIZE * 0.4)
    with trio.fail_after(60):
        async with ApiClient(daemon.port) as client:
            await begun(client, name, int(SIZE * 0.3))
            assert between.open >= PARTS
            client.close()
            left = trio.current_time()
            await between.left()
        assert trio.current_time() - left < SOON
        assert (await ask(daemon.port, "/api/show", model=name))[0] == 404
        await until(lambda: saved(daemon, model) >= SIZE * 0.3, 5.0, lambda: f"{saved(daemon, model)} were kept")

        between.allow(SIZE * 0.8)
        async with ApiClient(daemon.port) as client:
            await begun(client, name, int(SIZE * 0.7))
            daemon.signal(signal.SIGKILL)
            await trio.to_thread.run_sync(daemon.wait, 10.0)
            with contextlib.suppress(ConnectionError, AssertionError, h11.RemoteProtocolError):
                await client.records()
    kept = saved(daemon, model)
    assert kept >= SIZE * 0.7 - UNSAVED
    await between.left()
    await trio.to_thread.run_sync(daemon.start)
    before = between.total
    between.allow(math.inf)
    assert (await transfer(daemon.port, "pull", name, insecure=False))[-1] == {"status": "success"}
    model.check(daemon.store, f"{HOST}:{between.port}", source)
    assert between.total - before <= (SIZE - kept) * (1 + TLS) + 100_000


async def test_what_cannot_be_trusted_is_told_at_once_and_with_what_helps(
    trusting: RealDaemon, registry: DockerRegistry, authority: Authority, tmp_path: Path
) -> None:
    """And such a registry gets nothing of us."""
    own = OllamaStore(trusting.store)
    stranger = Authority(tmp_path / "stranger")
    refused = {
        "named": (
            authority.certificate("other.example"),
            f"its certificate is refused, it is not valid for '{HOST}' (call the registry by the name that "
            "its certificate is for)",
        ),
        "unknown": (
            stranger.certificate(HOST),
            "its certificate is refused, unable to get local issuer certificate (if you trust who signed it, start "
            "the server with SSL_CERT_FILE=<that authority's certificate>)",
        ),
        "old": (
            authority.certificate(HOST, ends=-timedelta(hours=1)),
            "its certificate is refused, certificate has expired",
        ),
        "plain": (None, 'no HTTPS is spoken there (--insecure, or "insecure": true, is plain HTTP)'),
    }
    with contextlib.ExitStack() as stack:
        for folder, (certificate, text) in refused.items():
            other = stack.enter_context(DockerRegistry(tmp_path / folder, certificate=certificate))
            host = f"{HOST}:{other.port}"
            own.add(f"{host}/library/mine:latest", b"weights")
            began = trio.current_time()
            pulled = await transfer(trusting.port, "pull", f"{host}/library/x", insecure=False)
            pushed = await transfer(trusting.port, "push", f"{host}/library/mine", insecure=False)
            assert trio.current_time() - began < SOON, "nothing is tried again"
            assert pulled[-1] == {"error": f"pull model manifest: connection to {host} failed: {text}"}
            assert pushed[-1] == {"error": f"connection to {host} failed: {text}"}
            assert other.manifest("library/mine") is None
