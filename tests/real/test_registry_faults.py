"""Pull from a registry that does everything wrong: what can be mended is, the rest is told, no name gets bad bytes."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.api_client import ApiClient, get
from tests.support.docker_registry import MANIFEST, DockerRegistry
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.proxy_faults import Answer, Fault, Then
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import noise, publish, transfer
from tests.support.store_fixture import OllamaStore

SIZE = 2_000_000
CUT = 700_000
LONG = "REGISTRY_LONG"
SOON = 5.0
"""Seconds, on a busy machine."""
STALL = 30.0
"""Seconds without a byte after which a connection is given up."""


def faults(host: str) -> dict[str, list[Fault]]:
    """What can be mended, by the name of the model that it befalls."""
    return {
        "reset": [Fault(then=Then.RESET, after=CUT), Fault(then=Then.RESET, after=CUT // 2)],
        "ended": [Fault(then=Then.END, after=CUT)],
        "nothing": [Fault(then=Then.END, after=0)],
        "broken": [Fault(times=2, answer=Answer(500, b"broken"))],
        "busy": [Fault(times=2, answer=Answer(429, b"slow down", {"Retry-After": "1"}))],
        "short": [Fault(short=CUT, times=2)],
        "whole": [Fault(whole=True, times=math.inf)],
        "whole and cut": [Fault(whole=True, times=math.inf), Fault(whole=True, then=Then.RESET, after=CUT)],
        "blind": [Fault(method="HEAD", times=math.inf, answer=Answer(405))],
        "manifest": [Fault("/manifests/", answer=Answer(503, b"not yet"))],
        "manifest cut": [Fault("/manifests/", then=Then.RESET, after=100)],
        "elsewhere": [Fault(times=math.inf, answer=lambda one: Answer(307, headers={"Location": host + one.path}))],
        "nearby": [Fault(times=1, answer=lambda one: Answer(307, headers={"Location": one.path + "?again"}))],
    }


async def test_what_goes_wrong_and_is_mended(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """Each model meets faults of its own, all at once. What came before a connection broke is not fetched again."""
    models, ends = {}, {}
    async with fault_proxy(registry.port) as other, trio.open_nursery() as nursery:

        async def pull(name: str) -> None:
            ends[name] = (await transfer(transferring.port, "pull", f"{proxy.host}/library/{name}"))[-1]

        for words, planned in faults(other.url).items():
            name = words.replace(" ", "-")
            models[name] = publish(registry, source, name, noise(SIZE, name))
            for fault in reversed(planned):
                fault.path = f"/{name}{fault.path}" if fault.path.startswith("/m") else models[name].weights
                proxy.add(fault)
        for name in models:
            nursery.start_soon(pull, name)
    assert ends == {name: {"status": "success"} for name in models}
    for model in models.values():
        model.check(transferring.store, proxy.host, source)
    for fault in proxy.faults:
        assert fault.times in (0, math.inf), f"not met: {fault}"
    for name in ("reset", "ended", "short"):
        passed = sum(one.sent for one in proxy.gets(models[name].weights))
        assert passed <= SIZE + 2 * 300_000, f"{name}: the kernel may have had some of it when the connection broke"
    assert other.gets(models["elsewhere"].weights)
    assert not any("authorization" in one.headers for one in other.exchanges)


def refusals(other: str) -> dict[str, tuple[Fault, str]]:
    """What cannot be mended, by the name of the model, with what is told of it."""
    huge = json.dumps({"schemaVersion": 2, "layers": [], "padding": "x" * 20_000_000}).encode()
    outside = json.dumps(
        {"schemaVersion": 2, "config": {"mediaType": "x", "digest": "sha256:../../../outside", "size": 3}, "layers": []}
    ).encode()
    challenge = {"WWW-Authenticate": 'Bearer realm="http://elsewhere.invalid/token",service="s"'}

    def manifest(answer: Answer) -> Fault:
        return Fault("/manifests/", times=99, answer=answer)

    return {
        "gone": (Fault(times=99, answer=Answer(404, b"no such blob")), "404"),
        "forbidden": (Fault(times=99, answer=Answer(403, b"denied")), "403: denied"),
        "no-json": (manifest(Answer(200, b"<html>", {"Content-Type": MANIFEST})), "pull model manifest: "),
        "half": (manifest(Answer(200, outside[:50])), "pull model manifest: "),
        "huge": (manifest(Answer(200, huge)), "pull model manifest: "),
        "outside": (manifest(Answer(200, outside)), "pull model manifest: "),
        "refused": (manifest(Answer(400, b"bad tag")), "pull model manifest: 400: bad tag"),
        "anonymous": (manifest(Answer(401)), "unauthorized: access denied"),
        "foreign": (
            manifest(Answer(401, headers=challenge)),
            'realm host "elsewhere.invalid" does not match original host',
        ),
        "damaged": (Fault(flip=5000, times=99), "digest mismatch, file must be downloaded again: want sha256:"),
        "round": (
            Fault(times=math.inf, answer=lambda one: Answer(307, headers={"Location": one.path})),
            "redirect",
        ),
    }


async def test_what_cannot_be_mended(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """It is told in one line, no name appears, and a later pull of a good registry gets it all."""
    models, ends = {}, {}

    async def pull(name: str) -> None:
        ends[name] = (await transfer(transferring.port, "pull", f"{proxy.host}/library/{name}"))[-1]

    async with trio.open_nursery() as nursery:
        for name, (fault, _) in refusals(proxy.url).items():
            models[name] = publish(registry, source, name, noise(20_000, name))
            fault.path = f"/{name}{fault.path}"
            proxy.add(fault)
        for name in models:
            nursery.start_soon(pull, name)
    for name, (_, text) in refusals(proxy.url).items():
        assert text in ends[name].get("error", ""), (name, ends[name])
        assert "\n" not in ends[name]["error"]
        assert not models[name].manifest_path(transferring.store, proxy.host).exists()
    listed = [model["name"] for model in (await get(transferring.port, "/api/tags"))["models"]]
    assert not [name for name in listed if proxy.host in name]
    damaged = models["damaged"].weights.replace(":", "-")
    assert not list((transferring.store / "blobs").glob(f"{damaged}*"))
    assert not list(transferring.store.parent.rglob("outside*"))

    proxy.faults.clear()
    for name in models:
        await pull(name)
        assert ends[name] == {"status": "success"}
    for model in models.values():
        model.check(transferring.store, proxy.host, source)


async def test_a_registry_that_is_not_there(transferring: RealDaemon, registry: DockerRegistry) -> None:
    """Told soon: it may be a wrong name."""
    async with fault_proxy(registry.port) as proxy:
        name = f"{proxy.host}/library/nothing"
    records = await transfer(transferring.port, "pull", name, within=15)
    assert records[-1]["error"].startswith("pull model manifest: ")
    assert proxy.host in records[-1]["error"]


async def test_a_client_leaves_while_the_daemon_pauses(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """The pauses between attempts can be cancelled: nothing is asked any more."""
    model = publish(registry, source, "paused", noise(SIZE, "paused"))
    proxy.add(Fault(times=math.inf, answer=Answer(500)))
    async with ApiClient(transferring.port) as client:
        await client.post("/api/pull", model=f"{proxy.host}/library/paused", insecure=True)
        assert await client.status() == 200
        with trio.fail_after(20):
            await trio.lowlevel.checkpoint()
            while not proxy.exchanges or proxy.exchanges[-1].digest != model.weights:
                assert await client.record() is not None
    await trio.sleep(0.3)
    asked = len(proxy.exchanges)
    await trio.sleep(1.5)
    assert len(proxy.exchanges) == asked
    proxy.faults.clear()
    assert (await transfer(transferring.port, "pull", f"{proxy.host}/library/paused"))[-1] == {"status": "success"}
    model.check(transferring.store, proxy.host, source)


async def test_a_daemon_that_is_told_to_stop(
    registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore, tmp_path: Path
) -> None:
    """It stops at once, and leaves what it has for the next one."""
    model = publish(registry, source, "stopped", noise(SIZE, "stopped"))
    name = f"{proxy.host}/library/stopped"
    proxy.allow(SIZE // 2)
    with RealDaemon(tmp_path / "models", HOME=str(tmp_path), TRIO_OLLAMA_DRAIN_TIMEOUT="0s") as daemon:
        async with ApiClient(daemon.port) as client:
            await client.post("/api/pull", model=name, insecure=True)
            assert await client.status() == 200
            await proxy.passed(SIZE // 2)
            while not ((await client.record()) or {}).get("completed"):
                pass
            daemon.signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(daemon.wait, SOON) == 0
        proxy.exchanges.clear()
        proxy.allow(math.inf)
        await trio.to_thread.run_sync(daemon.start)
        assert (await transfer(daemon.port, "pull", name))[-1] == {"status": "success"}
        model.check(daemon.store, proxy.host, source)
    assert sum(one.sent for one in proxy.gets(model.weights)) < SIZE


# Full disks


async def test_a_file_that_the_system_refuses(
    registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore, tmp_path: Path
) -> None:
    """By a limit on the size of files: told at once, not tried again, and later all is well."""
    model = publish(registry, source, "limited", noise(SIZE, "limited"))
    name = f"{proxy.host}/library/limited"
    with RealDaemon(tmp_path / "models", HOME=str(tmp_path)) as daemon:
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (SIZE // 2, resource.RLIM_INFINITY))
        records = await transfer(daemon.port, "pull", name, within=15)
        assert records[-1]["error"].startswith("cannot write to the model store: "), records
        assert not model.manifest_path(daemon.store, proxy.host).exists()
        assert (await get(daemon.port, "/api/tags"))["models"] == []
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert (await transfer(daemon.port, "pull", name))[-1] == {"status": "success"}
        model.check(daemon.store, proxy.host, source)


MOUNTS = 'mount -t tmpfs -o size=3m none "$1" && shift && exec "$@"'


class SmallDisk(RealDaemon):
    """A daemon in whose eyes the blobs are on a disk of 3 MiB."""

    def __init__(self, store: Path, **variables: str) -> None:
        super().__init__(store, **variables)
        (store / "blobs").mkdir(parents=True)
        self.before = [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            MOUNTS,
            "sh",
            str(store / "blobs"),
        ]

    @property
    def seen(self) -> Path:
        """The blobs, from outside."""
        return Path(f"/proc/{self.pid}/root{self.store}/blobs")


@pytest.fixture
def small_disk(tmp_path: Path, registry: DockerRegistry) -> Iterator[SmallDisk]:
    if shutil.which("unshare") is None:
        pytest.skip("no program `unshare` on this machine")
    daemon = SmallDisk(tmp_path / "models", HOME=str(tmp_path))
    trial = subprocess.run([*daemon.before, "true"], capture_output=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"this machine lets nobody mount a small disk: {trial.stderr.decode().strip()}")
    with daemon:
        yield daemon


@pytest.mark.parametrize("known", [True, False], ids=["before", "meanwhile"])
async def test_a_disk_that_is_full(
    known: bool, small_disk: SmallDisk, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """Before the download, or in its middle: told at once; with room again, it goes on with what there is."""
    model = publish(registry, source, "full", noise(SIZE, "full"))
    name = f"{proxy.host}/library/full"
    others = small_disk.seen / "others"
    records: list[dict[str, Any]] = []
    if known:
        others.write_bytes(bytes(2_000_000))
        records = await transfer(small_disk.port, "pull", name, within=15)
        assert proxy.gets(model.weights) == []
    else:
        proxy.allow(500_000)
        async with trio.open_nursery() as nursery:

            async def pull() -> None:
                records.extend(await transfer(small_disk.port, "pull", name, within=15))

            nursery.start_soon(pull)
            await proxy.passed(500_000)
            others.write_bytes(bytes(2_400_000))
            proxy.allow(math.inf)
    error = records[-1]["error"]
    assert error.startswith("cannot write to the model store: "), error
    assert known or os.strerror(28) in error
    assert (await get(small_disk.port, "/api/tags"))["models"] == []
    others.unlink()
    proxy.exchanges.clear()
    assert (await transfer(small_disk.port, "pull", name))[-1] == {"status": "success"}
    assert {path.name for path in small_disk.seen.iterdir()} == {
        layer["digest"].replace(":", "-") for layer in model.layers
    }
    for layer in model.layers:
        file = layer["digest"].replace(":", "-")
        assert (small_disk.seen / file).read_bytes() == (source.blobs / file).read_bytes()


@pytest.mark.skipif(LONG not in os.environ, reason=f"takes half a minute of waiting: set {LONG}")
async def test_connections_that_go_silent(
    transferring: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, source: OllamaStore
) -> None:
    """Each is given up after half a minute without a byte, and goes on from there; other parts go on meanwhile."""
    model = publish(registry, source, "silent", noise(20_000_000, "silent"))
    proxy.add(Fault(model.weights, then=Then.STALL, after=CUT), Fault(model.weights, then=Then.STALL, after=0))
    began = trio.current_time()
    records = await transfer(transferring.port, "pull", f"{proxy.host}/library/silent", within=4 * STALL)
    assert records[-1] == {"status": "success"}
    assert STALL - 1 < trio.current_time() - began < 3 * STALL
    model.check(transferring.store, proxy.host, source)
