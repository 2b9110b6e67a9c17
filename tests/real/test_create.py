"""Models made, copied and deleted over the wire, while they are used and not; and uploads that come to nothing."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ollama
import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.fake_registry import Reaction, fake_registry
from tests.support.raw_http import exchange
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_lora import write_tiny_lora
from tests.support.until import until

from .conftest import StartDaemon

SOON = 10.0
ANSWERED = 60.0
QUESTION = [{"role": "user", "content": "w1"}]
FIXED = {"seed": 1, "temperature": 0.0, "num_predict": 12}
Client = Callable[[RealDaemon], ollama.Client]


def blobs(store: Path) -> set[str]:
    return {path.name for path in (store / "blobs").iterdir()}


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def delete(daemon: RealDaemon, model: str) -> int:
    async with ApiClient(daemon.port) as client:
        await client.send("DELETE", "/api/delete", {"model": model})
        return await client.status()


async def loaded(daemon: RealDaemon) -> set[str]:
    return {model["name"] for model in (await get(daemon.port, "/api/ps"))["models"]}


# -- with the official client -----------------------------------------------------------------------------------


def test_from_a_file(
    start_daemon: StartDaemon, ollama_client: Client, store: Path, tmp_path: Path, tiny_models: dict[str, bytes]
) -> None:
    client = ollama_client(start_daemon())
    path = tmp_path / "new.gguf"
    path.write_bytes(tiny_models["tiny"] + bytes(64))
    digest = client.create_blob(path)
    assert digest == digest_of(path.read_bytes())
    assert (store / "blobs" / digest.replace(":", "-")).read_bytes() == path.read_bytes()
    files = {"new.gguf": digest}
    steps = [step.status for step in client.create("made", files=files, system="w9", parameters=FIXED, stream=True)]
    assert (steps[0], steps[-2:]) == ("parsing GGUF", ["writing manifest", "success"])
    assert f"using existing layer {digest}" in steps
    shown = client.show("made")
    assert shown.details is not None
    assert (shown.details.family, shown.details.format) == ("llama", "gguf")
    assert "SYSTEM w9\n" in (shown.modelfile or "")
    assert (shown.parameters or "").split() == ["num_predict", "12", "seed", "1", "temperature", "0"]

    # What was made into the model is what a request would have said.
    answer = client.chat("made", QUESTION)
    said = client.chat("tiny", [{"role": "system", "content": "w9"}, *QUESTION], options=FIXED)
    assert answer.eval_count == 12
    assert answer.message.content == said.message.content
    assert answer.prompt_eval_count == said.prompt_eval_count
    assert answer.message.content != client.chat("tiny", QUESTION, options=FIXED).message.content


def test_from_a_split_model_with_an_adapter(
    start_daemon: StartDaemon, ollama_client: Client, store: Path, tmp_path: Path
) -> None:
    """llama.cpp takes the file that was put together, and it says what the parts would have said."""
    client = ollama_client(start_daemon())
    write_tiny_gguf(tmp_path / "tiny.gguf", name="tiny", seed=1, split=8)
    pieces = sorted(tmp_path.glob("tiny-*.gguf"))
    assert len(pieces) == 3
    files = {path.name: client.create_blob(path) for path in pieces}
    with pytest.raises(ollama.ResponseError, match=r"a part .* is missing: tiny-00002-of-00003\.gguf"):
        client.create("made", files={name: digest for name, digest in files.items() if "-00002-" not in name})
    assert client.create("made", files=files, parameters=FIXED | {"num_thread": 1}).status == "success"
    plain = client.chat("made", QUESTION).message.content
    assert plain == client.chat("tiny", QUESTION, options=FIXED).message.content
    adapter = client.create_blob(write_tiny_lora(tmp_path / "lora.gguf"))
    client.create("tuned", from_="made", adapters={"lora.gguf": adapter})
    tuned = client.chat("tuned", QUESTION)
    assert tuned.eval_count == 12
    assert tuned.message.content != plain


@pytest.mark.parametrize("kind", ["q8_0", "q4_K_M"])
def test_quantized(kind: str, start_daemon: StartDaemon, ollama_client: Client) -> None:
    """llama.cpp takes what was written."""
    client = ollama_client(start_daemon())
    told = list(client.create("small", from_="tiny", quantize=kind, stream=True))
    step = next(step for step in told if (step.status or "").startswith("quantizing"))
    assert (step.status, step.digest) == (f"quantizing F32 model to {kind.upper()}", "0" * 19)
    assert told[-1].status == "success"
    details = client.show("small").details
    assert details is not None
    assert details.quantization_level == kind.upper()
    assert client.chat("small", QUESTION, options=FIXED).eval_count == 12


def test_from_a_model(start_daemon: StartDaemon, ollama_client: Client, store: Path) -> None:
    client = ollama_client(start_daemon())
    assert client.create("parent", from_="tiny", system="w7", parameters=FIXED).status == "success"
    before = blobs(store)
    assert client.create("child", from_="parent", system="w8", parameters={"num_predict": 3}).status == "success"
    new = [(store / "blobs" / name).stat().st_size for name in blobs(store) - before]
    assert new
    assert max(new) < 1000, "a second copy of the weights"
    answer = client.chat("child", QUESTION)
    said = client.chat("parent", [{"role": "system", "content": "w8"}, *QUESTION], options={"num_predict": 3})
    assert (answer.eval_count, answer.message.content) == (3, said.message.content)
    client.copy("child", "me/copy:v1")
    client.delete("child")
    assert client.chat("me/copy:v1", QUESTION).message.content == said.message.content
    assert {model.model for model in client.list().models} >= {"parent:latest", "me/copy:v1"}
    client.delete("me/copy:v1")
    assert blobs(store) == before
    with pytest.raises(ollama.ResponseError, match="not found"):
        client.create("child", from_="nobody:local")


# -- from a model that is pulled first --------------------------------------------------------------------------


async def steps(daemon: RealDaemon, **body: Any) -> list[dict[str, Any]]:
    async with ApiClient(daemon.port) as client:
        with trio.fail_after(ANSWERED):
            await client.post("/api/create", **body)
            assert await client.status() == 200
            return await client.records()


async def test_from_a_model_that_is_at_its_registry(start_daemon: StartDaemon, tiny_models: dict[str, bytes]) -> None:
    daemon = start_daemon()
    weights = tiny_models["tiny"] + bytes(96)
    async with fake_registry() as registry:
        registry.add_model("library/far:latest", weights)
        told = await steps(daemon, model="near", **{"from": f"{registry.host}/library/far"}, system="w9")
        statuses = [step["status"] for step in told]
        assert statuses[0] == "pulling manifest"
        assert f"pulling {digest_of(weights)[7:19]}" in statuses
        assert statuses[-2:] == ["writing manifest", "success"]
        assert statuses.count("success") == 1
        assert f"using existing layer {digest_of(weights)}" in statuses
        requests = len(registry.requests)
        assert (await steps(daemon, model="again", **{"from": f"{registry.host}/library/far"}))[-1][
            "status"
        ] == "success"
        assert len(registry.requests) == requests, "it was there"
    status, answer = await ask(daemon.port, "/api/chat", model="near", messages=QUESTION, options={"num_predict": 3})
    assert (status, answer.get("eval_count")) == (200, 3)
    assert (await ask(daemon.port, "/api/show", model="near"))[1]["system"] == "w9"


async def test_a_pull_that_fails_makes_no_model(start_daemon: StartDaemon, store: Path) -> None:
    daemon = start_daemon()
    before = OllamaStore(store).files()
    async with fake_registry() as registry:
        source: dict[str, Any] = {"from": f"{registry.host}/library/nobody"}
        text = "pull model manifest: file does not exist"
        told = await steps(daemon, model="new", **source)
        assert told == [{"status": "pulling manifest"}, {"error": text}]
        status, answer = await ask(daemon.port, "/api/create", model="new", stream=False, **source)
        assert (status, answer) == (500, {"error": text})
        # What is wrong with the request itself is told before anything is fetched.
        asked = len(registry.requests)
        status, answer = await ask(daemon.port, "/api/create", model="new", template="{{ if", **source)
        assert status == 400
        assert answer["error"].startswith("template error: ")
        assert len(registry.requests) == asked
    assert OllamaStore(store).files() == before


async def test_whoever_leaves_while_the_parent_is_pulled_stops_it(
    start_daemon: StartDaemon, tiny_models: dict[str, bytes], store: Path
) -> None:
    daemon = start_daemon()
    async with fake_registry() as registry:
        registry.add_model("library/far:latest", tiny_models["tiny"] + bytes(96))
        registry.react = lambda request: Reaction(hold=1000) if request.is_part else None
        async with ApiClient(daemon.port) as client:
            await client.post("/api/create", model="near", **{"from": f"{registry.host}/library/far"})
            await until(lambda: bool(registry.parts()), SOON, lambda: daemon.log)
        await until(lambda: not registry.connections, SOON, lambda: daemon.log)
    assert not (store / "manifests" / registry.host).exists()
    assert "near:latest" not in {model["name"] for model in (await get(daemon.port, "/api/tags"))["models"]}


# -- deleting what is loaded (R30) ------------------------------------------------------------------------------


async def test_delete_lets_the_running_answer_finish(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    tokens = 1000
    async with ApiClient(daemon.port) as client:
        await client.post("/api/chat", model="other", messages=QUESTION, options={"num_predict": tokens})
        with trio.fail_after(ANSWERED):
            assert await client.status() == 200
            assert await client.record()
            assert await delete(daemon, "other") == 200
            assert await ask(daemon.port, "/api/chat", model="other", messages=QUESTION) == (
                404,
                {"error": "model 'other' not found"},
            )
            last = (await client.records())[-1]
    assert (last.get("done"), last.get("eval_count")) == (True, tokens), last
    await until(lambda: not daemon.children(), SOON, lambda: daemon.log)
    assert await loaded(daemon) == set()


async def test_delete_of_one_of_two_names(start_daemon: StartDaemon) -> None:
    """The weights are still those of a model: it stays loaded."""
    daemon = start_daemon()
    async with ApiClient(daemon.port) as client:
        await client.post("/api/copy", source="other", destination="same")
        assert await client.status() == 200
    body: dict[str, Any] = {"messages": QUESTION, "options": {"num_predict": 3}}
    assert (await ask(daemon.port, "/api/chat", model="other", **body))[0] == 200
    (runner,) = daemon.children()
    assert await delete(daemon, "other") == 200
    assert (await ask(daemon.port, "/api/chat", model="same", **body))[0] == 200
    assert daemon.children() == [runner]
    assert await delete(daemon, "same") == 200
    await until(lambda: not daemon.children(), SOON, lambda: daemon.log)


# -- uploads ----------------------------------------------------------------------------------------------------


async def test_a_wrong_digest_leaves_nothing(start_daemon: StartDaemon, store: Path) -> None:
    daemon = start_daemon()
    before, data, wrong = blobs(store), b"GGUF and so on", digest_of(b"something else")
    head = f"POST /api/blobs/{wrong} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    answer = await exchange(daemon.port, head + data)
    text = f'digest mismatch, expected "{wrong}", got "{digest_of(data)}"'
    assert (answer.status, answer.json) == (400, {"error": text})
    assert blobs(store) == before


@pytest.mark.parametrize("leave", [ApiClient.close, ApiClient.reset], ids=["FIN", "RST"])
async def test_an_upload_that_is_broken_off_leaves_nothing(
    leave: Callable[[ApiClient], None], start_daemon: StartDaemon, store: Path
) -> None:
    daemon = start_daemon()
    async with ApiClient(daemon.port) as client:
        before = await half_an_upload(client, store)
        leave(client)
        await until(lambda: blobs(store) == before, SOON, lambda: f"{blobs(store) - before}\n{daemon.log}")


@pytest.mark.parametrize("again", [False, True], ids=["one signal", "two signals"])
async def test_shutdown_ends_an_upload_without_a_trace(again: bool, start_daemon: StartDaemon, store: Path) -> None:
    daemon = start_daemon(TRIO_OLLAMA_DRAIN_TIMEOUT="1m" if again else "0.5s")
    async with ApiClient(daemon.port) as client:
        before = await half_an_upload(client, store)
        daemon.signal(signal.SIGTERM)
        if again:
            await until(lambda: "shutting down" in daemon.log, SOON, lambda: daemon.log)
            daemon.signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(daemon.wait, SOON) == 0
    assert blobs(store) == before


async def half_an_upload(client: ApiClient, store: Path) -> set[str]:
    """Begin one, see it arrive, and stop in the middle; returns the blobs from before."""
    before, size = blobs(store), 4 << 20
    await client.send_raw(
        f"POST /api/blobs/{digest_of(b'')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2 * size}\r\n\r\n".encode()
    )
    await client.send_raw(bytes(size))

    def arrived() -> bool:
        return any((store / "blobs" / name).stat().st_size for name in blobs(store) - before)

    await until(arrived, SOON, lambda: str(blobs(store)))
    return before
