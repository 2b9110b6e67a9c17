"""Models in a registry, transfers as a client asks for them, and what a store has to look like afterwards."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

from tests.support.api_client import ApiClient
from tests.support.docker_registry import DockerRegistry
from tests.support.store_fixture import OllamaStore

__all__ = ["WITHIN", "Published", "add_model", "noise", "publish", "same_bytes", "strays", "transfer", "write_large"]

WITHIN: Final = 60.0
"""Seconds for a transfer on a busy machine."""
BLOCK: Final = 1 << 16


@dataclass(frozen=True)
class Published:
    """A model that a registry has."""

    repository: str
    manifest: bytes

    @property
    def layers(self) -> list[dict[str, Any]]:
        """In the order of a transfer: the layers, then the config."""
        manifest = json.loads(self.manifest)
        return [*manifest["layers"], manifest["config"]]

    @property
    def weights(self) -> str:
        """Their digest."""
        return str(self.layers[0]["digest"])

    @property
    def size(self) -> int:
        """Of the weights."""
        return int(self.layers[0]["size"])

    def manifest_path(self, store: Path, host: str) -> Path:
        return store / "manifests" / host / self.repository / "latest"

    def check(self, store: Path, host: str, source: OllamaStore) -> None:
        """It is in `store`, byte for byte, as it is in `source`."""
        assert self.manifest_path(store, host).read_bytes() == self.manifest
        for layer in self.layers:
            name = layer["digest"].replace(":", "-")
            assert same_bytes(store / "blobs" / name, source.blobs / name), name
        assert not strays(store)


def noise(size: int, seed: str) -> bytes:
    """Bytes that tell where they belong."""
    return random.Random(seed).randbytes(size)


def add_model(store: OllamaStore, name: str, weights: bytes | Path, **more: Any) -> bytes:
    """As `OllamaStore.add`, which see; the weights may be a file. Returns the manifest's bytes."""
    if isinstance(weights, bytes):
        return store.add(name, weights, **more)
    digest = file_digest(weights)
    blob = store.blobs / f"sha256-{digest}"
    if not blob.exists():
        blob.hardlink_to(weights)
    layer = {
        "mediaType": "application/vnd.ollama.image.model",
        "digest": f"sha256:{digest}",
        "size": weights.stat().st_size,
    }
    return store.add(name, None, layers=[layer], **more)


def publish(registry: DockerRegistry, source: OllamaStore, name: str, weights: bytes | Path, **more: Any) -> Published:
    """Make a model in `source` and bring it to the registry as `library/<name>`."""
    add_model(source, f"{name}:latest", weights, **more)
    return Published(f"library/{name}", registry.upload(source, f"{name}:latest", f"library/{name}"))


def write_large(path: Path, size: int) -> Path:
    """A large file of which few blocks lie on the disk; every 64 KiB tell where they belong."""
    with path.open("wb") as file:
        file.truncate(size)
        for begin in range(0, size, BLOCK):
            file.seek(begin)
            file.write(begin.to_bytes(8, "big"))
        file.truncate(size)
    return path


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def same_bytes(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            data = first.read(1 << 22)
            if data != second.read(1 << 22):
                return False
            if not data:
                return True


def strays(store: Path) -> set[str]:
    """Files in `blobs/` that no manifest refers to."""
    used = set()
    for path in (store / "manifests").rglob("*"):
        if path.is_file():
            manifest = json.loads(path.read_bytes())
            used |= {layer["digest"].replace(":", "-") for layer in [*manifest["layers"], manifest["config"]]}
    return {path.name for path in (store / "blobs").iterdir()} - used


async def transfer(
    port: int, kind: str, name: str, *, insecure: bool = True, within: float = WITHIN
) -> list[dict[str, Any]]:
    """`pull` or `push`; all that the daemon tells of it."""
    with trio.fail_after(within):
        async with ApiClient(port) as client:
            await client.post(f"/api/{kind}", model=name, insecure=insecure)
            assert await client.status() == 200
            return await client.records()
