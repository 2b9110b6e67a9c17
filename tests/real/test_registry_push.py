"""Push by a real daemon to the real registry: what is told, what arrives, and what does not become a model there."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import ollama
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.support.api_client import ApiClient, ask
from tests.support.docker_registry import DockerRegistry
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.proxy_faults import Answer, Exchange, Fault, Then
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import Published, noise, same_bytes, transfer
from tests.support.store_fixture import OllamaStore

SIZE = 20_000_000
UPLOAD = "/blobs/uploads/"
PUSH = "repository:library/secret:push"
NO_BODY = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()


@pytest.fixture
def own(transferring: RealDaemon) -> OllamaStore:
    """The daemon's store."""
    return OllamaStore(transferring.store)


def add(own: OllamaStore, host: str, name: str, weights: bytes, **more: Any) -> Published:
    """A model in the daemon's store that has yet to be pushed."""
    return Published(f"library/{name}", own.add(f"{host}/library/{name}:latest", weights, **more))


def check(registry: DockerRegistry, own: OllamaStore, model: Published) -> None:
    """The registry has it, byte for byte."""
    assert registry.manifest(model.repository) == model.manifest
    for layer in model.layers:
        assert same_bytes(registry.blob_path(layer["digest"]), own.blobs / layer["digest"].replace(":", "-"))


def uploads(proxy: FaultProxy, method: str = "PATCH") -> list[Exchange]:
    return [one for one in proxy.exchanges if one.method == method and UPLOAD in one.path]


async def test_what_a_client_is_told(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, own: OllamaStore
) -> None:
    """And that the registry has our bytes, and that nothing is sent twice."""
    model = add(own, proxy.host, "told", noise(SIZE, "pushed"), template="{{ .Prompt }}", license="free")
    proxy.rate = 40e6
    records = await transfer(transferring.port, "push", f"{proxy.host}/library/told")
    assert records[0] == {"status": "retrieving manifest"}
    assert records[-2:] == [{"status": "pushing manifest"}, {"status": "success"}]
    for layer in model.layers:
        lines = [one for one in records[1:-2] if one["digest"] == layer["digest"]]
        completed = [one.get("completed", 0) for one in lines]
        assert completed == sorted(completed)
        assert completed[-1] == layer["size"]
        assert all(one["status"] == f"pushing {layer['digest'][7:19]}" for one in lines)
        assert all(one["total"] == layer["size"] for one in lines)
    assert len([one for one in records[1:-2] if one["digest"] == model.weights]) >= 4, "half a second at 40 MB/s"
    check(registry, own, model)
    assert sum(one.received for one in uploads(proxy)) == sum(layer["size"] for layer in model.layers)

    proxy.exchanges.clear()
    again = await transfer(transferring.port, "push", f"{proxy.host}/library/told")
    assert again[-1] == {"status": "success"}
    assert {one["digest"] for one in again if one.get("completed")} == {layer["digest"] for layer in model.layers}
    assert not [one for one in proxy.exchanges if UPLOAD in one.path], "the registry has all of it"


async def test_a_layer_that_the_registry_has_elsewhere(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, own: OllamaStore
) -> None:
    """`from` names the model that it came from: the registry takes it from there."""
    weights = noise(3_000_000, "parent")
    parent = add(own, proxy.host, "parent", weights)
    assert (await transfer(transferring.port, "push", f"{proxy.host}/library/parent"))[-1]["status"] == "success"
    proxy.exchanges.clear()
    layer = own.layer("model", weights, **{"from": f"{proxy.host}/library/parent:latest"})
    data = own.add(f"{proxy.host}/library/child:latest", None, layers=[layer], system="other")
    child = Published("library/child", data)
    assert child.weights == parent.weights
    records = await transfer(transferring.port, "push", f"{proxy.host}/library/child")
    assert records[-1] == {"status": "success"}
    check(registry, own, child)
    assert sum(one.received for one in uploads(proxy)) < 10_000
    assert [one for one in uploads(proxy, "POST") if "from=library%2Fparent" in one.path and one.status == 201]


async def test_what_is_not_here(transferring: RealDaemon, registry: DockerRegistry) -> None:
    name = f"127.0.0.1:{registry.port}/library/nothing"
    records = await transfer(transferring.port, "push", name)
    assert "error" in records[-1], records
    status, answer = await ask(transferring.port, "/api/push", model=name, insecure=True)
    assert (status >= 400, answer) == (True, records[-1])


async def test_what_goes_wrong_and_is_mended(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, own: OllamaStore
) -> None:
    """Each model meets a fault of its own, all at once: it is in the registry at the end."""
    faults = {
        "reset": Fault(UPLOAD, "PATCH", then=Then.RESET, after=700_000),
        "ended": Fault(UPLOAD, "PATCH", then=Then.END, after=700_000),
        "busy": Fault(UPLOAD, "PATCH", answer=Answer(503, b"busy")),
        "unready": Fault(UPLOAD, "POST", times=2, answer=Answer(500, b"not yet")),
        "last": Fault(UPLOAD, "PUT", answer=Answer(502, b"gone")),
        "blind": Fault("/blobs/sha256:", "HEAD", answer=Answer(500)),
        "unnamed": Fault("/manifests/", "PUT", answer=Answer(500, b"not yet")),
    }
    for name, fault in faults.items():
        fault.path = f"/{name}{fault.path}"
        proxy.add(fault)
    models = {name: add(own, proxy.host, name, noise(1_500_000, name)) for name in faults}
    ends = {}

    async def push(name: str) -> None:
        ends[name] = (await transfer(transferring.port, "push", f"{proxy.host}/library/{name}"))[-1]

    async with trio.open_nursery() as nursery:
        for name in faults:
            nursery.start_soon(push, name)
    assert ends == {name: {"status": "success"} for name in faults}
    assert all(fault.times == 0 for fault in faults.values()), "each was met"
    for model in models.values():
        check(registry, own, model)


async def test_what_cannot_be_mended(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, own: OllamaStore
) -> None:
    """It is told, and the registry has no such model; nor does it keep wrong bytes."""
    refused = {
        "damaged": (Fault(UPLOAD, "PATCH", times=9, flip=1000), "DIGEST_INVALID"),
        "forbidden": (Fault(UPLOAD, "POST", times=99, answer=Answer(403, b"requested access is denied")), "denied"),
        "anonymous": (Fault("/", "HEAD", times=99, answer=Answer(401)), "unauthorized: access denied"),
        "foreign": (
            Fault(
                "/",
                "HEAD",
                times=99,
                answer=Answer(
                    401, headers={"WWW-Authenticate": 'Bearer realm="http://elsewhere.invalid/t",service="s"'}
                ),
            ),
            'realm host "elsewhere.invalid" does not match original host',
        ),
    }
    ends = {}

    async def push(name: str) -> None:
        ends[name] = (await transfer(transferring.port, "push", f"{proxy.host}/library/{name}"))[-1]

    async with trio.open_nursery() as nursery:
        for name, (fault, _) in refused.items():
            fault.path = f"/{name}{fault.path}"
            proxy.add(fault)
            add(own, proxy.host, name, noise(10_000, name))
            nursery.start_soon(push, name)
    for name, (_, text) in refused.items():
        assert text in ends[name].get("error", ""), ends[name]
        assert registry.manifest(f"library/{name}") is None
    damaged = hashlib.sha256(noise(10_000, "damaged")).hexdigest()
    assert not registry.blob_path(damaged).exists()


async def test_a_client_that_leaves(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, own: OllamaStore
) -> None:
    """The upload ends, and another push brings all of it."""
    model = add(own, proxy.host, "left", noise(SIZE, "left behind"))
    name = f"{proxy.host}/library/left"
    proxy.allow(5_000_000)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(ApiClient(transferring.port))
        await client.post("/api/push", model=name, insecure=True)
        assert await client.status() == 200
        await proxy.passed(5_000_000)
        (upload,) = [one for one in uploads(proxy) if one.received]
    # What is in the kernel's buffers still comes, and then the end of it.
    proxy.allow(math.inf)
    await proxy.ended(upload)
    assert upload.received < SIZE
    assert registry.manifest("library/left") is None
    assert (await transfer(transferring.port, "push", name))[-1] == {"status": "success"}
    check(registry, own, model)


async def test_the_official_client(
    transferring: RealDaemon,
    registry: DockerRegistry,
    proxy: FaultProxy,
    own: OllamaStore,
    ollama_client: Callable[[RealDaemon], ollama.Client],
) -> None:
    model = add(own, proxy.host, "official", noise(2_000_000, "officially"))
    client = ollama_client(transferring)
    name = f"{proxy.host}/library/official"

    def push() -> list[ollama.ProgressResponse]:
        return list(client.push(name, insecure=True, stream=True))

    progress = await trio.to_thread.run_sync(push)
    assert (progress[0].status, progress[-1].status) == ("retrieving manifest", "success")
    done = {one.digest for one in progress if one.digest and one.completed == one.total}
    assert done == {layer["digest"] for layer in model.layers}
    assert (await trio.to_thread.run_sync(lambda: client.push(name, insecure=True))).status == "success"
    check(registry, own, model)


@pytest.fixture
def keyed(tmp_path: Path, registry: DockerRegistry) -> Iterator[RealDaemon]:
    """A daemon that has no key yet."""
    with RealDaemon(tmp_path / "models", HOME=str(tmp_path)) as daemon:
        yield daemon


async def test_a_registry_that_wants_tokens(keyed: RealDaemon, tmp_path: Path) -> None:
    """Push and pull: the key is made when it is asked for, and what it signs is what the specification says. A token
    that is not enough for everything is exchanged for another one."""
    asked: list[Exchange] = []

    def token(exchange: Exchange) -> Answer:
        asked.append(exchange)
        assert check_signature(exchange, proxy.url)
        return Answer(200, json.dumps({"token": "a token"}).encode())

    async with fault_proxy() as proxy:
        challenge = f'Bearer realm="{proxy.url}/token",service="tests",scope="repository:library/secret:pull {PUSH}"'
        proxy.add(
            Fault("^/token", times=math.inf, answer=token),
            Fault(UPLOAD, "POST", answer=Answer(401, headers={"WWW-Authenticate": challenge})),
        )
        with DockerRegistry(tmp_path / "registry", realm=f"{proxy.url}/token") as closed:
            proxy.upstream = closed.port
            own = OllamaStore(keyed.store)
            model = add(own, proxy.host, "secret", noise(1_000_000, "secret"))
            name = f"{proxy.host}/library/secret"
            assert not (tmp_path / ".ollama" / "id_ed25519").exists()
            assert (await transfer(keyed.port, "push", name))[-1] == {"status": "success"}
            check(closed, own, model)
            assert (tmp_path / ".ollama" / "id_ed25519").stat().st_mode & 0o777 == 0o600
            scopes = [parse_qs(urlsplit(one.path).query)["scope"] for one in asked]
            assert scopes == [["repository:library/secret:pull"], ["repository:library/secret:pull", PUSH]]
            for layer in model.layers:
                (own.blobs / layer["digest"].replace(":", "-")).unlink()
            assert (await transfer(keyed.port, "pull", name))[-1] == {"status": "success"}
            model.check(keyed.store, proxy.host, own)
    nonces = [parse_qs(urlsplit(one.path).query)["nonce"][0] for one in asked]
    assert len(set(nonces)) == len(nonces)
    assert all(len(base64.urlsafe_b64decode(nonce + "==")) == 16 for nonce in nonces)


def check_signature(exchange: Exchange, url: str) -> bool:
    """Whether the request for a token is signed by the key that it shows. Raises InvalidSignature."""
    shown, signature = (base64.b64decode(text) for text in exchange.headers["authorization"].split(":"))
    # The format of SSH: the key's kind and the key, each after its length.
    assert shown[4:15] == b"ssh-ed25519"
    key = Ed25519PublicKey.from_public_bytes(shown[19:])
    key.verify(signature, f"GET,{url}{exchange.path},{NO_BODY}".encode())
    return parse_qs(urlsplit(exchange.path).query)["service"] == ["tests"]
