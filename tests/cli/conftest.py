"""A fake server that the commands find through OLLAMA_HOST, and a way to call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from tests.support.fake_ollama import FakeOllama
from trio_ollama.cli import main

Invoke = Callable[..., Result]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOllama]:
    with FakeOllama.running() as fake:
        monkeypatch.setenv("OLLAMA_HOST", fake.address)
        yield fake


@pytest.fixture
def invoke() -> Invoke:
    """`invoke("list", "--json", stdin="")`; stdin and stdout are pipes."""

    def call(*args: str, stdin: str = "") -> Result:
        return CliRunner().invoke(main, list(args), input=stdin)

    return call
