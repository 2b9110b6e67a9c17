"""Pull from the real registry by a real daemon: what is told, what is stored, and who shares a download."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import ollama
import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.docker_registry import DockerRegistry
from tests.support.fault_proxy import FaultProxy
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import Published, noise, publish, strays, transfer
from tests.support.store_fixture import OllamaStore
from tests.support.until import until

RecordProperty = Callable[[str, object], None]

CROWD = 50
SIZE = 40_000_000
"""Of weights that are fetched in several parts."""
SOON = 1.0
"""Seconds. What takes 50 ms takes longer on a busy machine."""
SLACK = 4 * (1 << 20)
"""Bytes that were read, but not yet written, when a transfer stopped."""


async def test_what_a_client_is_told(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """And that the store has the registry's bytes, and that nothing is fetched twice."""
    told = publish(registry, source, "told", noise(SIZE, "told"), template="{{ .Prompt }}", params={"stop": ["x"]})
    proxy.rate = 80e6
    records = await transfer(transferring.port, "pull", f"{proxy.host}/library/told")

    assert records[0] == {"status": "pulling manifest"}
    end = [{"status": text} for text in ("verifying sha256 digest", "writing manifest", "success")]
    assert records[-3:] == end
    of_blobs = records[1:-3]
    order = [
        one["digest"] for before, one in pairwise([{"digest": ""}, *of_blobs]) if one["digest"] != before["digest"]
    ]
    assert order == [layer["digest"] for layer in told.layers], "one blob after another, in the manifest's order"
    for layer in told.layers:
        lines = [one for one in of_blobs if one["digest"] == layer["digest"]]
        completed = [one.get("completed", 0) for one in lines]
        assert completed == sorted(completed)
        assert completed[-1] == layer["size"]
        assert all(one["status"] == f"pulling {layer['digest'][7:19]}" for one in lines)
        assert all(one["total"] == layer["size"] for one in lines)
        assert all(one.get("completed") != 0 for one in lines), "absent while nothing is there"
    assert len([one for one in of_blobs if one["digest"] == told.weights]) >= 4, "half a second at 80 MB/s"
    told.check(transferring.store, proxy.host, source)
    assert sum(one.sent for one in proxy.gets(told.weights)) == told.size

    (model,) = [one for one in (await get(transferring.port, "/api/tags"))["models"] if proxy.host in one["name"]]
    assert model["name"] == f"{proxy.host}/library/told:latest"
    assert model["digest"] == hashlib.sha256(told.manifest).hexdigest()

    proxy.exchanges.clear()
    again = await transfer(transferring.port, "pull", f"{proxy.host}/library/told")
    complete = [
        {
            "status": f"pulling {layer['digest'][7:19]}",
            "digest": layer["digest"],
            "total": layer["size"],
            "completed": layer["size"],
        }
        for layer in told.layers
    ]
    assert again == [records[0], *complete, *end]
    assert [one.digest for one in proxy.exchanges] == [None], "the manifest only"


async def test_a_model_that_changed(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """The blobs that only the old manifest had go; those in common stay and are not fetched again."""
    first = publish(registry, source, "changing", noise(50_000, "changing"), system="old", license="kept")
    await transfer(transferring.port, "pull", f"{proxy.host}/library/changing")
    second = publish(registry, source, "changing", noise(50_000, "changing"), system="new", license="kept")
    records = await transfer(transferring.port, "pull", f"{proxy.host}/library/changing")
    assert [one["status"] for one in records[-3:]] == ["writing manifest", "removing unused layers", "success"]
    second.check(transferring.store, proxy.host, source)
    assert len(proxy.gets(second.weights)) == 1
    gone = {layer["digest"] for layer in first.layers} - {layer["digest"] for layer in second.layers}
    assert len(gone) == 2
    for digest in gone:
        assert not (transferring.store / "blobs" / digest.replace(":", "-")).exists()


async def test_a_pulled_model_answers(
    transferring: RealDaemon,
    registry: DockerRegistry,
    proxy: FaultProxy,
    source: OllamaStore,
    tiny_models: dict[str, bytes],
) -> None:
    tiny = publish(registry, source, "tiny", tiny_models["tiny"], params={"num_thread": 1})
    name = f"{proxy.host}/library/tiny:latest"
    status, answer = await ask(transferring.port, "/api/pull", model=name, insecure=True)
    assert (status, answer) == (200, {"status": "success"})
    tiny.check(transferring.store, proxy.host, source)
    status, answer = await ask(
        transferring.port, "/api/generate", model=name, prompt="w1", options={"num_predict": 3}, within=60
    )
    assert (status, answer["eval_count"]) == (200, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_not_there(transferring: RealDaemon, registry: DockerRegistry, stream: bool) -> None:
    async with ApiClient(transferring.port) as client:
        name = f"127.0.0.1:{registry.port}/library/nothing"
        await client.post("/api/pull", model=name, insecure=True, stream=stream)
        status = await client.status()
        records = await client.records() if stream else [await client.whole()]
    assert status == (200 if stream else 500)
    assert records[-1] == {"error": "pull model manifest: file does not exist"}
    assert records[:-1] == ([{"status": "pulling manifest"}] if stream else [])


async def test_the_official_client(
    transferring: RealDaemon,
    registry: DockerRegistry,
    proxy: FaultProxy,
    source: OllamaStore,
    ollama_client: Callable[[RealDaemon], ollama.Client],
) -> None:
    model = publish(registry, source, "official", noise(2_000_000, "official"))
    client = ollama_client(transferring)
    name = f"{proxy.host}/library/official"

    def pull() -> list[ollama.ProgressResponse]:
        return list(client.pull(name, insecure=True, stream=True))

    progress = await trio.to_thread.run_sync(pull)
    assert (progress[0].status, progress[-1].status) == ("pulling manifest", "success")
    done = {one.digest for one in progress if one.digest and one.completed == one.total}
    assert done == {layer["digest"] for layer in model.layers}
    whole = await trio.to_thread.run_sync(lambda: client.pull(name, insecure=True))
    assert whole.status == "success"
    model.check(transferring.store, proxy.host, source)


async def crowd(stack: contextlib.AsyncExitStack, daemon: RealDaemon, name: str, count: int) -> list[ApiClient]:
    """Clients that all pull, and have been told of bytes."""
    clients = [await stack.enter_async_context(ApiClient(daemon.port)) for _ in range(count)]
    for client in clients:
        await client.post("/api/pull", model=name, insecure=True)
    for client in clients:
        assert await client.status() == 200
        while not ((record := await client.record()) or {}).get("completed"):
            assert record is not None
            assert "error" not in record, record
    return clients


async def test_one_download_for_many(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """Of fifty clients all but one leave, and it goes on. The last one may stay where it is."""
    model = publish(registry, source, "wanted", noise(SIZE, "wanted"))
    half = model.size // 2
    proxy.allow(half)
    with trio.fail_after(60):
        async with contextlib.AsyncExitStack() as stack:
            clients = await crowd(stack, transferring, f"{proxy.host}/library/wanted", CROWD)
            await proxy.passed(half)
            *leaving, staying = clients
            for client in leaving[: CROWD // 2]:
                client.close()
            for client in leaving[CROWD // 2 :]:
                client.reset()
            proxy.allow(half + 4_000_000)
            await proxy.passed(half + 4_000_000)
            proxy.allow(math.inf)
            records = await staying.records()
    assert records[-1] == {"status": "success"}
    model.check(transferring.store, proxy.host, source)
    assert sum(one.sent for one in proxy.gets(model.weights)) == model.size, "each byte once"
    assert all(one.left_at is None for one in proxy.gets(model.weights)), "and no connection was given up"


async def test_the_last_to_leave_ends_it(
    transferring: RealDaemon,
    registry: DockerRegistry,
    proxy: FaultProxy,
    source: OllamaStore,
    record_property: RecordProperty,
) -> None:
    """At once, and what there is stays: a later pull goes on with it."""
    model = publish(registry, source, "left", noise(SIZE, "left"))
    name = f"{proxy.host}/library/left"
    half = model.size // 2
    proxy.allow(half)
    async with contextlib.AsyncExitStack() as stack:
        first, last = await crowd(stack, transferring, name, 2)
        await proxy.passed(half)
        # The kernel's buffers may hold some of it still.
        await until(lambda: not unread(transferring), 5.0, lambda: "the daemon reads")
        first.close()
        open_ones = [one for one in proxy.gets(model.weights) if not one.done]
        assert open_ones
        began = trio.current_time()
        last.close()
        ends = [await proxy.left(one) for one in open_ones]
    record_property("stopped after", max(ends) - began)
    assert max(ends) - began < SOON
    blobs = transferring.store / "blobs"
    partial = blobs / f"{model.weights.replace(':', '-')}-partial"
    await until(lambda: str(partial) not in open_files(transferring), 5.0, lambda: "the partial file is open still")
    assert half - SLACK <= saved(partial) <= half
    assert partial.stat().st_size == model.size
    assert (await get(transferring.port, "/api/version"))["version"]

    kept = saved(partial)
    proxy.exchanges.clear()
    proxy.allow(math.inf)
    assert (await transfer(transferring.port, "pull", name))[-1] == {"status": "success"}
    assert sum(one.sent for one in proxy.gets(model.weights)) == model.size - kept
    model.check(transferring.store, proxy.host, source)


def open_files(daemon: RealDaemon) -> set[str]:
    """What its file descriptors lead to."""
    found = set()
    for path in Path(f"/proc/{daemon.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(str(path.readlink()))
    return found


def unread(daemon: RealDaemon) -> bool:
    """Whether bytes for the daemon wait in a socket."""
    ours = open_files(daemon)
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(int(fields[4].split(":")[1], 16) for fields in map(str.split, lines) if f"socket:[{fields[9]}]" in ours)


def saved(partial: Path) -> int:
    """Bytes that the part files speak of."""
    parts = [json.loads(path.read_bytes()) for path in partial.parent.glob(f"{partial.name}-*")]
    return sum(part["Completed"] for part in parts)


async def test_what_ollama_left_is_used(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """Its part files, with its plan: only what is missing is fetched."""
    data = noise(1_000_000, "ollama")
    model = publish(registry, source, "half", data)
    partial = transferring.store / "blobs" / f"{model.weights.replace(':', '-')}-partial"
    content = bytearray(len(data))
    wanted = []
    for number, completed in enumerate((400_000, 150_000, 0)):
        offset, size = number * 400_000, min(400_000, len(data) - number * 400_000)
        content[offset : offset + completed] = data[offset : offset + completed]
        wanted += [range(offset + completed, offset + size)] if completed < size else []
        plan = {"N": number, "Offset": offset, "Size": size, "Completed": completed}
        partial.with_name(f"{partial.name}-{number}").write_text(json.dumps(plan, separators=(",", ":")) + "\n")
    partial.write_bytes(content)

    records = await transfer(transferring.port, "pull", f"{proxy.host}/library/half")
    assert records[-1] == {"status": "success"}
    told = [one["completed"] for one in records if one.get("digest") == model.weights and "completed" in one]
    assert told[0] >= 550_000
    assert sorted((one.passed for one in proxy.gets(model.weights)), key=lambda one: one.start) == wanted
    model.check(transferring.store, proxy.host, source)


async def test_other_requests_meanwhile(
    transferring: RealDaemon, registry: DockerRegistry, source: OllamaStore, record_property: RecordProperty
) -> None:
    """A download as fast as it goes leaves others their turn, and shows no model before it is whole."""
    model = publish(registry, source, "fast", noise(2 * SIZE, "fast"))
    host = f"127.0.0.1:{registry.port}"
    records: list[dict[str, Any]] = []
    slowest = 0.0
    rounds = 0
    async with trio.open_nursery() as nursery:

        async def pull() -> None:
            records.extend(await transfer(transferring.port, "pull", f"{host}/library/fast"))

        nursery.start_soon(pull)
        while not records:
            for path in ("/api/version", "/api/ps", "/api/tags"):
                began = trio.current_time()
                answer = await get(transferring.port, path)
                slowest = max(slowest, trio.current_time() - began)
                listed = f"{host}/library/fast:latest" in [one["name"] for one in answer.get("models", ())]
                assert not listed or path == "/api/tags"
                assert not listed or model.manifest_path(transferring.store, host).exists()
            rounds += 1
            await trio.sleep(0.01)
    record_property("slowest answer", slowest)
    assert records[-1] == {"status": "success"}
    assert rounds > 1
    assert slowest < SOON
    model.check(transferring.store, host, source)
    assert not strays(transferring.store)


def test_published_models_differ(registry: DockerRegistry, source: OllamaStore) -> None:
    """What the tests compare would otherwise say nothing."""
    one: Published = publish(registry, source, "one", noise(100, "one"))
    assert one.weights != publish(registry, source, "two", noise(100, "two")).weights
