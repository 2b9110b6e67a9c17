"""Push: the blobs of a model to its registry, and then the manifest that lists them, byte for byte."""

from __future__ import annotations

import trio

from trio_ollama.models import manifest as media
from trio_ollama.models.errors import BrokenModelError, ModelNotFoundError, ModelsError
from trio_ollama.models.files import read_bounded, store_errors
from trio_ollama.models.manifest import Manifest, decode_manifest
from trio_ollama.models.manifests import MAX_MANIFEST
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store

from .client import Client
from .errors import AnswerError, RegistryError
from .limits import Limits
from .retry import repeat
from .transfer import Progress, Tell
from .upload import Upload

__all__ = ["push"]


async def push(store: Store, client: Client, limits: Limits, tell: Tell) -> None:
    """Bring the model that `client` refers to to its registry; every step is told, the last is `success`.

    Raises RegistryError, and what the store says of a model that cannot be read.
    """
    name = client.reference.name
    tell(Progress("retrieving manifest"))
    try:
        data, manifest = await trio.to_thread.run_sync(_manifest, store, name)
    except ModelsError:
        tell(Progress("couldn't retrieve manifest"))
        raise
    try:
        for layer in manifest.blobs:
            await Upload(store.blobs, client, layer, limits, tell).run()
        tell(Progress("pushing manifest"))
        await repeat(f"manifest of {name}", lambda: _put(client, data, manifest), limits.asking, limits)
    except AnswerError as error:
        if error.code == 403:
            raise RegistryError(f"access denied: {error}") from error
        raise
    tell(Progress("success"))


async def _put(client: Client, data: bytes, manifest: Manifest) -> None:
    headers = {"Content-Type": manifest.media_type or media.MANIFEST}
    async with client.follow("PUT", client.reference.manifest, headers, data) as (response, _):
        await response.check()


def _manifest(store: Store, name: ModelName) -> tuple[bytes, Manifest]:
    found = store.manifests.find(name)
    if found is None:
        raise ModelNotFoundError(name.short)
    try:
        with store_errors("read the model store"):
            data = read_bounded(store.manifests.path(found), MAX_MANIFEST)
        return data, decode_manifest(data)
    except ValueError as error:
        raise BrokenModelError(f"the manifest of '{name.short}' cannot be used: {error}") from error
