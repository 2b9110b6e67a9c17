"""A store that Ollama has made is used as it is, every layer of it, and stays as it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import ollama
import pytest

from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore

from .conftest import StartDaemon

QUESTION = [{"role": "user", "content": "w1"}]
EXAMPLE = [{"role": "user", "content": "w2"}, {"role": "assistant", "content": "w3 w4"}]
PARAMS = {
    "seed": 1,
    "temperature": 0,
    "num_predict": 12,
    "num_ctx": 512,
    "stop": ["<|end|>", "[user]"],
    "num_thread": 1,
}
FIXED = {name: value for name, value in PARAMS.items() if name != "stop"}


@pytest.fixture
def manifests(store: Path, tiny_models: dict[str, bytes]) -> dict[str, bytes]:
    """Models with each kind of layer, under names of each kind: name to manifest."""
    made = OllamaStore(store)
    weights = tiny_models["tiny"]
    return {
        "full:latest": made.add(
            "full:latest", weights, params=PARAMS, messages=EXAMPLE, system="w9 w8", license="Do what you like."
        ),
        "me/thing:q4_K_M": made.add("me/thing:q4_K_M", weights, params=FIXED),
        "example.com/Some-One/Big-Model:v1.5": made.add("example.com/Some-One/Big-Model:v1.5", weights, params=FIXED),
    }


@pytest.fixture
def client(
    manifests: dict[str, bytes],
    start_daemon: Callable[..., RealDaemon],
    ollama_client: Callable[[RealDaemon], ollama.Client],
) -> ollama.Client:
    return ollama_client(start_daemon())


def test_list(client: ollama.Client, manifests: dict[str, bytes], store: Path) -> None:
    models = {model.model: model for model in client.list().models}
    assert set(models) == {*manifests, "tiny:latest", "other:latest", "embedder:latest"}
    for name, manifest in manifests.items():
        assert models[name].digest == hashlib.sha256(manifest).hexdigest()
    full = models["full:latest"]
    assert full.details is not None
    assert (full.details.family, full.details.parameter_size, full.details.quantization_level) == (
        "llama",
        "134.52M",
        "Q4_K_M",
    )
    assert full.size is not None
    assert full.size > max(path.stat().st_size for path in (store / "blobs").iterdir())


def test_show(client: ollama.Client) -> None:
    shown = client.show("full")
    assert shown.license == "Do what you like."
    lines = [line.split(maxsplit=1) for line in (shown.parameters or "").splitlines()]
    assert ["num_predict", "12"] in lines
    assert [value for name, value in lines if name == "stop"] == ['"<|end|>"', '"[user]"']
    modelfile = (shown.modelfile or "").splitlines()
    for line in ("SYSTEM w9 w8", "PARAMETER num_ctx 512", "MESSAGE user w2", "MESSAGE assistant w3 w4"):
        assert line in modelfile
    assert shown.template is not None
    assert "message.role" in shown.template
    assert shown.capabilities == ["completion"]


def test_every_layer_counts_in_a_chat(client: ollama.Client) -> None:
    """The system, the example messages and the parameters are what a request with them would have said."""
    answer = client.chat("full", QUESTION)
    whole = [{"role": "system", "content": "w9 w8"}, *EXAMPLE, *QUESTION]
    said = client.chat("tiny", whole, options=FIXED)
    assert (answer.eval_count, answer.done_reason) == (12, "length")
    assert answer.prompt_eval_count == said.prompt_eval_count
    assert answer.message.content == said.message.content
    # The same weights with the same options: one runner serves both names.
    assert [model.context_length for model in client.ps().models] == [512]
    # A request says otherwise.
    other = client.chat("full", [{"role": "system", "content": "w5"}, *QUESTION], options={"num_predict": 3})
    assert other.eval_count == 3


@pytest.mark.parametrize(
    "name", ["me/thing:q4_K_M", "ME/Thing:Q4_K_M", "example.com/some-one/big-model:v1.5", "tiny", "tiny:LATEST"]
)
def test_names_in_any_case(name: str, client: ollama.Client) -> None:
    answer = client.chat(name, QUESTION, options=FIXED)
    assert (answer.model, answer.eval_count) == (name, 12)


def test_the_store_stays_as_it_was(
    store: Path, manifests: dict[str, bytes], start_daemon: StartDaemon, ollama_client: Callable[..., ollama.Client]
) -> None:
    made = OllamaStore(store)
    before = made.files()
    client = ollama_client(start_daemon())
    for name in manifests:
        client.show(name)
        assert client.chat(name, QUESTION).eval_count == 12
    client.list()
    client.copy("full", "second")
    client.create("third", from_="full", system="w6")
    client.delete("second")
    client.delete("third")
    assert made.files() == before
