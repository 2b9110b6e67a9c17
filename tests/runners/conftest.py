"""Models and runner factories for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.llama_server_double import write_double
from tests.support.tiny_gguf import write_tiny_gguf
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.runners.llama_server import LlamaServerFactory, runner_factory

SpecMaker = Callable[..., LaunchSpec]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, with room for answers that last for many seconds."""
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", context=32768)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[LlamaServerFactory]:
    """A factory of embedded runners."""
    with runner_factory("embedded", root=tmp_path) as factory:
        yield factory


@pytest.fixture
def external(tmp_path: Path) -> Iterator[LlamaServerFactory]:
    """A factory of external runners, whose binary is the double."""
    with runner_factory("external", write_double(tmp_path), root=tmp_path) as factory:
        yield factory


@pytest.fixture(params=["embedded", "external"])
def factory(request: pytest.FixtureRequest) -> LlamaServerFactory:
    """Either."""
    made = request.getfixturevalue(request.param)
    assert isinstance(made, LlamaServerFactory)
    return made


@pytest.fixture
def spec(tiny_model: Path) -> SpecMaker:
    """Makes launch specs for the tiny model; keyword arguments replace the defaults."""

    def make(**changes: object) -> LaunchSpec:
        values: dict[str, object] = {
            "model": str(tiny_model),
            "num_ctx": 32768,
            "num_batch": 128,
            "gpu_layers": 0,
            "num_thread": 1,
        }
        return LaunchSpec(**(values | changes))  # type: ignore[arg-type]

    return make
