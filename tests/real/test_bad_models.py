"""Models that are damaged in every way: each answers with what is wrong with it, and nothing else is affected."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.api_client import ask, get
from tests.support.daemon_log import DaemonLog
from tests.support.raw_gguf import raw_gguf
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf

from .conftest import ONE_THREAD, StartDaemon

ANSWERED = 30.0
MESSAGES = [{"role": "user", "content": "w1"}]
DAMAGED_FILE = "unsupported model format: "
DIED = "llama-server process has terminated: exit status 1: "

TINY_WEIGHTS: dict[str, Callable[[bytes], tuple[bytes, str]]] = {
    "not a GGUF": lambda good: (b"hello, this is no model at all", "invalid file magic"),
    "empty": lambda good: (b"", "invalid file magic"),
    "magic only": lambda good: (b"GGUF", f"{DAMAGED_FILE}the file ends inside its header"),
    "other version": lambda good: (raw_gguf(version=9), f"{DAMAGED_FILE}GGUF version 9"),
    "cut in the header": lambda good: (good[:2000], f"{DAMAGED_FILE}the file ends inside its header"),
    "cut in the data": lambda good: (
        good[:-1000],
        f"{DAMAGED_FILE}the file ends after {len(good) - 1000} of {len(good)} bytes",
    ),
    "no weights": lambda good: (raw_gguf({"tokenizer.chat_template": "{{ 1 }}"}), f"{DIED}error loading model: "),
    "unknown architecture": lambda good: (
        good.replace(b"llama", b"xxxxx"),
        f"{DIED}error loading model: unknown model architecture: 'xxxxx'",
    ),
    "misnamed tensor": lambda good: (
        good.replace(b"blk.1.attn_q.weight", b"blk.1.attn_Q.weight"),
        f"{DIED}error loading model: check_tensor_dims: tensor 'blk.1.attn_q.weight' not found",
    ),
    "template that is none": lambda good: (good.replace(b"{% endfor %}", b"{% for %}{# "), f"{DIED}error: "),
}
"""Bytes in the place of good weights, and how the answer to a chat begins."""

MANIFESTS = {"empty": b"", "cut": b'{"layers":', "a list": b"[]", "binary": bytes(range(256))}


@pytest.fixture
def bad(store: Path) -> OllamaStore:
    """The usual store, to which bad models can be added."""
    return OllamaStore(store)


async def chat(daemon: RealDaemon, model: str, **options: Any) -> tuple[int, Any]:
    options = {"num_predict": 4, **options}
    return await ask(daemon.port, "/api/chat", within=ANSWERED, model=model, messages=MESSAGES, options=options)


async def names(daemon: RealDaemon, path: str) -> set[str]:
    return {model["name"].partition(":")[0] for model in (await get(daemon.port, path))["models"]}


async def is_served(daemon: RealDaemon, model: str = "tiny") -> None:
    status, answer = await chat(daemon, model)
    assert (status, answer.get("eval_count")) == (200, 4), answer
    assert model in await names(daemon, "/api/ps")


async def test_bad_weights(bad: OllamaStore, tiny_models: dict[str, bytes], start_daemon: StartDaemon) -> None:
    expected = {}
    for number, make in enumerate(TINY_WEIGHTS.values()):
        data, expected[f"bad{number}"] = make(tiny_models["tiny"])
        bad.add(f"bad{number}:latest", data, params=ONE_THREAD)
    daemon = start_daemon()
    await is_served(daemon)
    for model, text in expected.items():
        status, answer = await chat(daemon, model)
        assert (status, set(answer)) == (500, {"error"})
        assert answer["error"].startswith(text), model
        await is_served(daemon)
    assert await names(daemon, "/api/tags") == {"tiny", "other", "embedder", *expected}
    assert await names(daemon, "/api/ps") == {"tiny"}
    assert len(daemon.children()) == 1


async def test_weights_that_were_damaged_later(bad: OllamaStore, start_daemon: StartDaemon) -> None:
    """After they were read, or used: a new load tells."""
    daemon = start_daemon()
    for harm in (lambda path: path.write_bytes(path.read_bytes()[:-1000]), Path.unlink):
        await is_served(daemon, "other")
        assert (await ask(daemon.port, "/api/generate", model="other", keep_alive=0))[0] == 200
        path = weights_of(bad, "other")
        good = path.read_bytes()
        harm(path)
        status, answer = await chat(daemon, "other")
        assert status == 500
        assert re.search(
            "has [0-9]+ bytes instead of|the file ends after|not within the file bounds|missing|failed to open",
            answer["error"],
        )
        await is_served(daemon)
        path.unlink(missing_ok=True)
        path.write_bytes(good)
    await is_served(daemon, "other")


async def test_a_blob_is_missing(bad: OllamaStore, start_daemon: StartDaemon) -> None:
    bad.add("bad:latest", b"its own")
    digest = hashlib.sha256(b"its own").hexdigest()
    (bad.blobs / f"sha256-{digest}").unlink()
    daemon = start_daemon()
    assert await chat(daemon, "bad") == (
        500,
        {
            "error": f"model 'bad:latest' is damaged: blob sha256:{digest} is missing; remove it, then pull or "
            "create it again"
        },
    )
    await is_served(daemon)


@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=MANIFESTS)
async def test_a_broken_manifest(manifest: bytes, bad: OllamaStore, start_daemon: StartDaemon) -> None:
    bad.add("bad:latest")
    bad.manifest_path("bad:latest").write_bytes(manifest)
    daemon = start_daemon()
    status, answer = await chat(daemon, "bad")
    assert status == 500
    assert answer["error"].startswith("the manifest of 'bad:latest' cannot be used: ")
    assert await names(daemon, "/api/tags") == {"tiny", "other", "embedder"}
    await is_served(daemon)


async def test_no_chat_template(bad: OllamaStore, tmp_path: Path, start_daemon: StartDaemon) -> None:
    weights = write_tiny_gguf(tmp_path / "plain.gguf", seed=5, chat_template=False)
    bad.add("plain:latest", weights.read_bytes(), params=ONE_THREAD)
    daemon = start_daemon()
    refusal = {"error": 'model "plain" has no chat template, and none is stored with it'}
    assert await chat(daemon, "plain") == (400, refusal)
    assert await ask(daemon.port, "/api/generate", model="plain", prompt="w1") == (400, refusal)
    assert not daemon.children()
    raw = {"model": "plain", "prompt": "w1", "raw": True, "options": {"num_predict": 4}}
    status, answer = await ask(daemon.port, "/api/generate", within=ANSWERED, **raw)
    assert (status, answer.get("eval_count")) == (200, 4), answer


async def test_more_than_there_is_memory_for(bad: OllamaStore, tmp_path: Path, start_daemon: StartDaemon) -> None:
    """It is refused with the numbers, and nothing has to go for it."""
    tokens = 2_000_000_000
    weights = write_tiny_gguf(tmp_path / "long.gguf", seed=6, context=tokens)
    bad.add("long:latest", weights.read_bytes(), params=ONE_THREAD)
    daemon = start_daemon(OLLAMA_MAX_LOADED_MODELS="1")
    log = DaemonLog(daemon.log_path)
    await is_served(daemon)
    status, answer = await chat(daemon, "long", num_ctx=tokens)
    assert status == 500
    size = r"[0-9.]+ [GM]iB"
    assert re.fullmatch(rf"model requires more system memory \({size}\) than is available \({size}\)", answer["error"])
    assert await names(daemon, "/api/ps") == {"tiny"}
    assert not log.matching(r"\(generation \d+\) goes")
    await is_served(daemon, "long")


async def test_unknown_models(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    assert await chat(daemon, "nobody") == (404, {"error": "model 'nobody' not found"})
    assert await chat(daemon, "tiny:8b") == (404, {"error": "model 'tiny:8b' not found"})
    assert await chat(daemon, "") == (400, {"error": "model is required"})
    assert await chat(daemon, "a/b/c/d/e") == (400, {"error": "invalid model name"})
    assert not daemon.children()


async def test_eager_clients_of_a_broken_model(
    bad: OllamaStore, tiny_models: dict[str, bytes], start_daemon: StartDaemon
) -> None:
    """R78: no spawn storm, however often they ask."""
    data, _ = TINY_WEIGHTS["unknown architecture"](tiny_models["tiny"])
    bad.add("bad:latest", data, params=ONE_THREAD)
    daemon = start_daemon()
    log = DaemonLog(daemon.log_path)

    async def client() -> None:
        for _ in range(10):
            status, answer = await chat(daemon, "bad")
            assert status == 500
            assert "unknown model architecture: 'xxxxx'" in answer["error"]

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(client)
    assert len(log.matching("loading bad:latest as generation")) == 3
    await is_served(daemon)


def weights_of(store: OllamaStore, model: str) -> Path:
    manifest = store.manifest_path(f"{model}:latest").read_text()
    digest = re.search(r'image\.model","digest":"sha256:([0-9a-f]{64})', manifest)
    assert digest is not None
    return store.blobs / f"sha256-{digest[1]}"
