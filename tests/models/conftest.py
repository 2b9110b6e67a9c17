"""Stores as Ollama leaves them, and ours over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from trio_ollama.models.store import Store


@pytest.fixture
def theirs(tmp_path: Path) -> OllamaStore:
    """An empty store that Ollama made."""
    return OllamaStore(tmp_path / "models")


@pytest.fixture
def store(theirs: OllamaStore) -> Store:
    """Our view of it."""
    return Store(theirs.root)


@pytest.fixture(scope="session")
def tiny_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real model file."""
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf").read_bytes()
