"""Daemons that are killed in the middle of a transfer: what was fetched is not fetched again, and the end is good.

The environment variable REGISTRY_BYTES sets the size of the weights: 1000000000 for the full measure, which is taken
with both plans.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import h11
import pytest
import trio

from tests.support.docker_registry import DockerRegistry
from tests.support.fault_proxy import FaultProxy
from tests.support.proxy_faults import Exchange
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import Published, add_model, publish, same_bytes, transfer, write_large
from tests.support.store_fixture import OllamaStore

RecordProperty = Callable[[str, object], None]

FULL = "REGISTRY_BYTES" in os.environ
SIZE = int(os.environ.get("REGISTRY_BYTES", "120000000"))
PART = max(100_000_000, min(SIZE // 16, 1_000_000_000))
"""Bytes of a part as Ollama plans them."""
KILLS = 3
AGAIN = 16_000_000
"""Bytes of a part that may be fetched again after a kill."""
RATE = 400e6
"""Bytes a second at most, so that a daemon is killed where the test wants it."""
STOP = 10.0


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RealDaemon]:
    with RealDaemon(tmp_path / "models", HOME=str(tmp_path)) as made:
        yield made


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_large(tmp_path / "weights", SIZE)


# Our own parts are no larger than what may be fetched again, unless the file is much larger.
@pytest.fixture(params=["Ollama's plan", *(["our plan"] if FULL else [])])
def model(
    request: pytest.FixtureRequest, registry: DockerRegistry, daemon: RealDaemon, source: OllamaStore, weights: Path
) -> Published:
    """Large. With Ollama's plan, it has begun to fetch it: its parts are larger than ours, and the last is done."""
    made = publish(registry, source, "large", weights)
    if request.param == "Ollama's plan":
        blobs = OllamaStore(daemon.store).blobs
        partial = blobs / f"{made.weights.replace(':', '-')}-partial"
        offsets = range(0, SIZE, PART)
        with partial.open("wb") as file, weights.open("rb") as whole:
            file.seek(offsets[-1])
            whole.seek(offsets[-1])
            shutil.copyfileobj(whole, file)
        for number, offset in enumerate(offsets):
            size = min(PART, SIZE - offset)
            plan = {"N": number, "Offset": offset, "Size": size, "Completed": size if offset == offsets[-1] else 0}
            partial.with_name(f"{partial.name}-{number}").write_text(json.dumps(plan, separators=(",", ":")) + "\n")
    return made


async def cut_short(daemon: RealDaemon, kind: str, name: str) -> None:
    """Ask for a transfer, and read what is told until the daemon is gone."""
    with pytest.raises((AssertionError, ConnectionError, h11.RemoteProtocolError)):
        await transfer(daemon.port, kind, name)


async def kill(daemon: RealDaemon, proxy: FaultProxy, kind: str, name: str, after: int) -> None:
    """A daemon that is killed when so many more bytes have passed; then it is started again."""
    target = proxy.total + after
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut_short, daemon, kind, name)
        await proxy.passed(target)
        daemon.signal(signal.SIGKILL)
        await trio.to_thread.run_sync(daemon.wait, STOP)
    await trio.to_thread.run_sync(daemon.start)


def twice(before: list[Exchange], after: list[Exchange], part: range) -> int:
    """Bytes of a part that passed before, and after."""
    reached = max((min(one.passed.stop, part.stop) for one in before if one.start in part), default=part.start)
    again = min((one.start for one in after if one.start in part), default=reached)
    return max(0, reached - again)


async def test_a_pull_that_is_killed(
    daemon: RealDaemon,
    registry: DockerRegistry,
    proxy: FaultProxy,
    source: OllamaStore,
    model: Published,
    record_property: RecordProperty,
) -> None:
    name = f"{proxy.host}/library/large"
    chance = random.Random(SIZE)
    proxy.rate = RATE
    partial = daemon.store / "blobs" / f"{model.weights.replace(':', '-')}-partial"
    begun = [json.loads(path.read_bytes()) for path in partial.parent.glob(f"{partial.name}-*")]
    ends = []
    for _ in range(KILLS):
        await kill(daemon, proxy, "pull", name, chance.randrange(SIZE * 24 // 100, SIZE * 27 // 100))
        ends.append(len(proxy.gets(model.weights)))
        assert not model.manifest_path(daemon.store, proxy.host).exists()
    parts = [json.loads(path.read_bytes()) for path in partial.parent.glob(f"{partial.name}-*")]
    assert not begun or {part["Offset"] for part in begun} == {part["Offset"] for part in parts}, "the plan stays"
    proxy.rate = math.inf
    assert (await transfer(daemon.port, "pull", name))[-1] == {"status": "success"}
    model.check(daemon.store, proxy.host, source)

    gets = proxy.gets(model.weights)
    worst = 0
    for begin, end, following in zip([0, *ends], ends, [*ends[1:], len(gets)], strict=False):
        for part in parts:
            wanted = range(part["Offset"], part["Offset"] + part["Size"])
            worst = max(worst, twice(gets[begin:end], gets[end:following], wanted))
    record_property("of one part after one kill", worst)
    record_property("of all", sum(one.sent for one in gets) - SIZE + sum(part["Completed"] for part in begun))
    assert worst <= AGAIN


async def test_a_push_that_is_killed(
    daemon: RealDaemon, registry: DockerRegistry, proxy: FaultProxy, weights: Path, tmp_path: Path
) -> None:
    """The registry keeps nothing of it under a name, and gets all of it in the end."""
    name = f"{proxy.host}/library/sent"
    own = OllamaStore(daemon.store)
    chance = random.Random(SIZE + 1)
    with weights.open("r+b") as file:
        file.write(b"sent")  # not the weights of the other test: the registry would have them
    local = Published("library/sent", add_model(own, f"{name}:latest", weights))
    proxy.rate = RATE
    for _ in range(KILLS):
        await kill(daemon, proxy, "push", name, chance.randrange(SIZE // 20, SIZE // 2))
        assert registry.manifest("library/sent") is None
    proxy.rate = math.inf
    assert (await transfer(daemon.port, "push", name))[-1] == {"status": "success"}
    assert registry.manifest("library/sent") == local.manifest
    for one in local.layers:
        assert same_bytes(registry.blob_path(one["digest"]), own.blobs / one["digest"].replace(":", "-"))
