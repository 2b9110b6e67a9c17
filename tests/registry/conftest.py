"""A store, a registry client that is quick to give up, and a fake registry to speak to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from tests.support.fake_registry import FakeRegistry, fake_registry
from tests.support.until import until
from trio_ollama.models.create import Progress
from trio_ollama.models.digest import Digest
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store
from trio_ollama.registry import Limits, Reference, Registry, Transfer
from trio_ollama.registry.partial import Partial

QUICK = Limits(
    parallel=4,
    stall=5.0,
    tries=3,
    first_pause=0.01,
    locating=0.3,
    asking=0.3,
    tick=0.005,
    lock_poll=0.01,
    part=200_000,
    upload_part=300_000,
    save_every=64_000,
    piece=32_768,
)
SOON = 10.0


async def finish(transfer: Transfer) -> list[Progress]:
    """All news of a transfer until its end; raises its error."""
    told: list[Progress] = []
    with trio.fail_after(SOON):
        while news := await transfer.news():
            told += news
    return told


@dataclass
class Here:
    """This machine: a store and what speaks to registries for it."""

    store: Store
    registry: Registry
    remote: FakeRegistry

    def reference(self, name: str = "library/tiny:latest") -> Reference:
        return Reference(ModelName.parse(f"{self.remote.host}/{name}"))

    def begin(self, name: str = "library/tiny:latest") -> Transfer:
        return self.registry.pull(self.reference(name))

    async def pull(self, name: str = "library/tiny:latest") -> list[Progress]:
        return await finish(self.begin(name))

    async def push(self, name: str = "library/tiny:latest") -> list[Progress]:
        return await finish(self.registry.push(self.reference(name)))

    async def ended(self, transfer: Transfer) -> None:
        """It is over; its news may be unread."""
        await until(lambda: transfer.ended, SOON, lambda: "the transfer goes on")

    def free(self, digest: Digest) -> bool:
        """Nobody downloads this blob to our store."""
        partial = Partial.open(self.store.blobs, digest, QUICK)
        if partial is not None:
            partial.close()
        return partial is not None

    def files(self) -> set[str]:
        """What lies among the blobs, without the blobs."""
        folder = self.store.blobs.directory
        return {path.name[71:] for path in folder.iterdir()} - {""} if folder.is_dir() else set()

    def blob(self, digest: str) -> bytes:
        return self.store.blob_path(digest).read_bytes()


@pytest.fixture
async def remote() -> AsyncIterator[FakeRegistry]:
    async with fake_registry() as registry:
        yield registry


@pytest.fixture
def new_registry(nursery: trio.Nursery, tmp_path: Path) -> Callable[..., Registry]:
    """Makes a registry client over a store, as another daemon would have it."""

    def make(store: Store, limits: Limits = QUICK) -> Registry:
        registry = Registry(store, tmp_path / "keys" / "id_ed25519", limits=limits)
        nursery.start_soon(registry.run)
        return registry

    return make


@pytest.fixture
async def here(tmp_path: Path, nursery: trio.Nursery, remote: FakeRegistry) -> Here:
    store = Store(tmp_path / "models")
    registry = Registry(store, tmp_path / "keys" / "id_ed25519", limits=QUICK)
    await nursery.start(registry.run)
    return Here(store, registry, remote)
