"""A store with tiny real models, and daemons on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import ollama
import openai
import pytest

from tests.support.docker_registry import NO_REGISTRY, DockerRegistry, find_docker_registry
from tests.support.fake_nvml import GIB, NO_COMPILER, build, compiler
from tests.support.fault_proxy import FaultProxy, fault_proxy
from tests.support.gpu_daemon import GpuDaemon
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf

StartDaemon = Callable[..., RealDaemon]
StartGpuDaemon = Callable[..., GpuDaemon]

ONE_THREAD = {"num_thread": 1}
"""Parameters of all models here. Threads of llama.cpp spin while they wait for each other: with as many of them as
cores, a machine that does anything else makes each token take a time slice or two."""

LARGE = 13 * 10**9
"""Bytes of the large models on machines with simulated GPUs."""


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of three different tiny models: two that chat, one that embeds."""
    folder = tmp_path_factory.mktemp("weights")
    return {
        "tiny": write_tiny_gguf(folder / "tiny.gguf", name="tiny", seed=1).read_bytes(),
        "other": write_tiny_gguf(folder / "other.gguf", name="other", seed=2).read_bytes(),
        "embedder": write_tiny_gguf(folder / "embedder.gguf", name="embedder", seed=3, pooling="mean").read_bytes(),
    }


@pytest.fixture
def store(tmp_path: Path, tiny_models: dict[str, bytes]) -> Path:
    """A store as Ollama would leave it, with the tiny models."""
    made = OllamaStore(tmp_path / "models")
    for name, weights in tiny_models.items():
        made.add(f"{name}:latest", weights, params=ONE_THREAD)
    return made.root


@pytest.fixture
def start_daemon(store: Path) -> Iterator[StartDaemon]:
    """Starts daemons on `store`; keyword arguments are environment variables. All are stopped, and checked for
    children they left, at the end."""
    with contextlib.ExitStack() as stack:

        def start(**variables: str) -> RealDaemon:
            return stack.enter_context(RealDaemon(store, **variables))

        yield start


@pytest.fixture(scope="session")
def gpu_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the driver library of simulated GPUs."""
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def start_gpu_daemon(tmp_path: Path, gpu_library: Path) -> Iterator[StartGpuDaemon]:
    """Starts the daemon on a machine with simulated GPUs: two of 24 GiB unless told otherwise, with three models of
    which one fits on a GPU but not two, and a small one. Arguments are those of `GpuDaemon`."""
    models = {"one": LARGE, "two": LARGE, "three": LARGE, "small": GIB}
    with contextlib.ExitStack() as stack:

        def start(**arguments: Any) -> GpuDaemon:
            arguments = {"models": models, **arguments}
            return stack.enter_context(GpuDaemon(tmp_path, gpu_library, **arguments))

        yield start


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    """A real registry, which the tests of a module share."""
    if find_docker_registry() is None:
        pytest.skip(NO_REGISTRY)
    with DockerRegistry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def transferring(tmp_path_factory: pytest.TempPathFactory, registry: DockerRegistry) -> Iterator[RealDaemon]:
    """A daemon with a store that is empty at first and a home of its own, which the tests of a module share."""
    folder = tmp_path_factory.mktemp("transferring")
    with RealDaemon(folder / "models", HOME=str(folder)) as daemon:
        yield daemon


@pytest.fixture
def source(tmp_path: Path) -> OllamaStore:
    """Where models are made that a registry gets."""
    return OllamaStore(tmp_path / "source")


@pytest.fixture
async def proxy(registry: DockerRegistry) -> AsyncIterator[FaultProxy]:
    """Before the registry."""
    async with fault_proxy(registry.port) as made:
        yield made


@pytest.fixture
def ollama_client() -> Iterator[Callable[[RealDaemon], ollama.Client]]:
    """Makes official clients and closes them: they have no `close` of their own for all versions we test with."""
    with contextlib.ExitStack() as stack:

        def make(daemon: RealDaemon) -> ollama.Client:
            client = ollama.Client(daemon.url)
            stack.callback(client._client.close)
            return client

        yield make


@pytest.fixture
def client(daemon: RealDaemon, ollama_client: Callable[[RealDaemon], ollama.Client]) -> ollama.Client:
    """Of the `daemon` that a file of tests has."""
    return ollama_client(daemon)


@pytest.fixture
def openai_client(daemon: RealDaemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="unused", max_retries=0) as made:
        yield made
