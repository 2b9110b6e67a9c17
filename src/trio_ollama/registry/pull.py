"""Pull: a manifest, the blobs it lists, and then, with all of them here and checked, its name in the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import trio

from trio_ollama.models import manifest as media
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import BlobNotFoundError, ModelsError
from trio_ollama.models.manifest import Layer, decode_manifest
from trio_ollama.models.manifests import MAX_MANIFEST
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store

from .client import Client
from .downloads import Downloads
from .errors import ConnectionFailedError, RegistryError
from .limits import Limits
from .partial import remove_leftovers
from .retry import repeat
from .transfer import Progress, Tell

__all__ = ["pull"]

WRITE_TRIES: Final = 3
"""Times that a blob may be deleted, by somebody who did not know that it was wanted, while the others are fetched."""

T = TypeVar("T")


async def pull(store: Store, downloads: Downloads, client: Client, limits: Limits, prune: bool, tell: Tell) -> None:
    """Fetch what `client` refers to; every step is told, the last is `success`.

    Raises RegistryError, StoreUnavailableError. Nothing appears in the store unless all of it is there.
    """
    name = client.reference.name
    tell(Progress("pulling manifest"))
    try:
        data = await _fetch_manifest(client, limits)
        manifest = decode_manifest(data)
    except (RegistryError, ValueError) as error:
        raise RegistryError(f"pull model manifest: {error}") from error
    if manifest.of_type(media.TENSOR):
        raise RegistryError("this model requires MLX support, but the MLX runtime is not available")
    replaced = await _in_thread(_blobs_of, store, name) - {layer.parsed_digest for layer in manifest.blobs}
    for tries_left in reversed(range(WRITE_TRIES)):
        for layer in manifest.blobs:
            await _have(store, downloads, client, layer, tell)
        tell(Progress("verifying sha256 digest"))  # of what was fetched; each blob has been, before it got its name
        tell(Progress("writing manifest"))
        try:
            await _in_thread(lambda: store.write_manifest(name, data, prune=prune))
            break
        except BlobNotFoundError:
            if not tries_left:
                raise
    if replaced and prune:
        tell(Progress("removing unused layers"))
    tell(Progress("success"))


async def _fetch_manifest(client: Client, limits: Limits) -> bytes:
    """The manifest as it is, byte for byte."""
    data = b""

    async def ask() -> None:
        nonlocal data
        async with client.follow("GET", client.reference.manifest, {"Accept": media.MANIFEST}) as (response, _):
            if response.status == 404:
                raise RegistryError("file does not exist")
            await response.check()
            data = await response.read(MAX_MANIFEST)
            digest = response.headers.get("docker-content-digest", "")
        if digest.startswith("sha256:") and digest != str(Digest.of(data)):
            raise ConnectionFailedError("it was damaged on the way")

    await repeat(f"manifest of {client.reference.name}", ask, limits.asking, limits)
    return data


async def _have(store: Store, downloads: Downloads, client: Client, layer: Layer, tell: Tell) -> None:
    """Have a layer's blob in the store."""
    status = f"pulling {layer.parsed_digest.hex[:12]}"
    if await _in_thread(_touch, store, layer):
        tell(Progress(status, layer.digest, layer.size, layer.size))
    else:
        await downloads.fetch(client.reference, layer, status, tell)


def _touch(store: Store, layer: Layer) -> bool:
    """Whether the blob is there; from now on it is safe from pruning for a while. One that was cut short is not."""
    try:
        store.blobs.touch(layer.parsed_digest)
    except BlobNotFoundError:
        return False
    if store.blobs.size(layer.parsed_digest) != layer.size:
        return False
    remove_leftovers(store.blobs, layer.parsed_digest)
    return True


def _blobs_of(store: Store, name: ModelName) -> set[Digest]:
    """What the name refers to now, if anything."""
    try:
        return {layer.parsed_digest for layer in store.entry(name).manifest.blobs}
    except ModelsError:
        return set()


async def _in_thread(work: Callable[..., T], *arguments: object) -> T:
    return await trio.to_thread.run_sync(work, *arguments)
