"""An application over a real store with tiny models and a scheduler that plays from a script."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.api_description import check_described
from tests.support.asgi_client import Answer, send
from tests.support.fake_scheduler import FakeScheduler
from tests.support.tiny_gguf import CHAT_TEMPLATE, write_tiny_gguf
from trio_ollama.models import manifest as media
from trio_ollama.models.manifest import ConfigBlob, Manifest
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.names import ModelName
from trio_ollama.models.store import Store
from trio_ollama.server.app import create_app
from trio_ollama.server.asgi import App
from trio_ollama.settings import Settings

THINKING_TEMPLATE = CHAT_TEMPLATE + "{# <think> </think> tools #}"


@dataclass
class Daemon:
    """The application and what it works with; `send` asks it something and checks that nothing was left held, and that
    the answer is one that /openapi.json tells of."""

    app: App
    scheduler: FakeScheduler
    store: Store

    async def send(self, method: str, path: str, body: object = b"", **more: Any) -> Answer:
        answer = await send(self.app, method, path, body, **more)
        assert answer.complete
        assert self.scheduler.idle
        check_described(method, path, answer)
        return answer

    async def post(self, path: str, body: object = b"", **more: Any) -> Answer:
        return await self.send("POST", path, body, **more)


AddModel = Callable[..., ModelName]


@pytest.fixture(scope="session")
def gguf_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Model files by what is special about them."""
    folder = tmp_path_factory.mktemp("gguf")
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "thinking": {"chat_template": THINKING_TEMPLATE},
        "bare": {"chat_template": False},
        "embedding": {"pooling": "mean"},
    }
    return {
        kind: write_tiny_gguf(folder / f"{kind}.gguf", **arguments).read_bytes() for kind, arguments in kinds.items()
    }


@pytest.fixture(scope="session")
def first_store(tmp_path_factory: pytest.TempPathFactory, gguf_files: Mapping[str, bytes]) -> Store:
    """A store with `tiny`, `thinker` (thinks, takes tools), `bare` (no template) and `vectors` (embeddings)."""
    store = Store(tmp_path_factory.mktemp("models"))
    for name, kind in (("tiny", "plain"), ("thinker", "thinking"), ("bare", "bare"), ("vectors", "embedding")):
        put_model(store, name, gguf_files[kind])
    return store


@pytest.fixture
def store(tmp_path: Path, first_store: Store) -> Store:
    """The same, a test's own. Files are linked, not copied: a store never changes a file in place."""
    shutil.copytree(first_store.root, tmp_path / "models", copy_function=os.link)
    return Store(tmp_path / "models")


def put_model(
    store: Store,
    name: str,
    weights: bytes,
    *,
    system: str = "",
    template: str = "",
    params: Mapping[str, Any] | None = None,
    messages: list[dict[str, str]] | None = None,
    **config: Any,
) -> ModelName:
    """Write a model; `template` is a Go template, `config` are fields of its config blob."""
    texts: list[tuple[str, bytes]] = [(media.MODEL, weights)]
    if system:
        texts.append((media.SYSTEM, system.encode()))
    if template:
        texts.append((media.TEMPLATE, template.encode()))
    if params:
        texts.append((media.PARAMS, msgspec.json.encode(params)))
    if messages:
        texts.append((media.MESSAGES, msgspec.json.encode(messages)))
    layers = tuple(store.put_blob_bytes(data, kind) for kind, data in texts)
    described = ConfigBlob(**{"model_family": "llama", "model_type": "100K", "file_type": "F32", **config})
    config_layer = store.put_blob_bytes(msgspec.json.encode(described), media.CONFIG)
    parsed = ModelName.parse(name)
    store.write_manifest(parsed, Manifest(config=config_layer, layers=layers))
    return parsed


@pytest.fixture
def add_model(store: Store, gguf_files: Mapping[str, bytes]) -> AddModel:
    """Put a model into the store: `add_model("name", "thinking", system=..., params=..., config=...)`."""

    def add(name: str, kind: str = "plain", **more: Any) -> ModelName:
        return put_model(store, name, gguf_files[kind], **more)

    return add


@pytest.fixture
def daemon(store: Store) -> Daemon:
    scheduler = FakeScheduler()
    app = create_app(
        settings=Settings(),
        scheduler=scheduler,  # type: ignore[arg-type]
        store=store,
        metadata_cache=MetadataCache(),
    )
    return Daemon(app, scheduler, store)


@contextlib.contextmanager
def nothing_started(scheduler: FakeScheduler) -> Any:
    """The requests in here must not reach the scheduler."""
    before = len(scheduler.demands)
    yield
    assert len(scheduler.demands) == before
