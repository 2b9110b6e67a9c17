"""Real requests, looked at and ended by somebody else than their clients; and a model that is stopped by force."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.held_runner import HeldRunner
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import until

from .conftest import ONE_THREAD
from .test_disconnects import CONTEXT, LET_GO, PROMPT, REACHED, STORY, Scene, now, seconds

CANCELED = {"error": "request canceled"}
STOPPED = {"error": "the model was stopped"}
MESSAGES = [{"role": "user", "content": "w1"}]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDaemon]:
    """With room for one model, which has one slot."""
    folder = tmp_path_factory.mktemp("live requests")
    store = OllamaStore(folder / "models")
    long = write_tiny_gguf(folder / "long.gguf", name="long", seed=7, context=CONTEXT)
    store.add("long:latest", long.read_bytes(), params={**ONE_THREAD, "num_ctx": CONTEXT})
    store.add(
        "other:latest", write_tiny_gguf(folder / "other.gguf", name="other", seed=8).read_bytes(), params=ONE_THREAD
    )
    with RealDaemon(store.root, OLLAMA_MAX_LOADED_MODELS="1") as daemon:
        yield daemon
        assert "Traceback" not in daemon.log


@pytest.fixture
async def scene(daemon: RealDaemon) -> AsyncIterator[Scene]:
    scene = Scene(daemon)
    yield scene
    await scene.quiet()
    assert await requests(daemon) == []


async def requests(daemon: RealDaemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await get(daemon.port, "/api/requests"))["requests"]
    return found


async def only(daemon: RealDaemon, stage: str) -> dict[str, Any]:
    """The one request there is, as soon as it is at this stage."""
    with trio.fail_after(REACHED):
        while True:
            found = await requests(daemon)
            if len(found) == 1 and found[0]["stage"] == stage:
                return found[0]
            await trio.sleep(0.02)


async def cancel(daemon: RealDaemon, id_: str) -> tuple[int, Any]:
    async with ApiClient(daemon.port) as client:
        await client.send("DELETE", f"/api/requests/{id_}")
        return await client.status(), await client.whole()


async def test_in_the_middle_of_a_stream(scene: Scene) -> None:
    """R75, R08: the client is told in its stream; the runner is free within a step, and lives."""
    await scene.loaded("long")
    async with scene.chatting() as client:
        entry = await only(scene.daemon, "generating")
        assert (entry["model"], entry["path"], entry["generation"]) == ("long:latest", "/api/chat", 1)
        assert entry["tokens"] > 0
        assert entry["prompt"]["processed"] == entry["prompt"]["total"] > 0
        left = now()
        assert (await cancel(scene.daemon, entry["id"]))[0] == 200
        with trio.fail_after(LET_GO):
            *tokens, last = await client.records()
        assert last == CANCELED
        assert not any(record["done"] for record in tokens)
        await scene.let_go(left)
    assert (await cancel(scene.daemon, entry["id"]))[0] == 404
    await scene.answers("long")
    assert not scene.log.matching("SIG")


async def test_while_the_prompt_is_read(scene: Scene) -> None:
    """R08: half of the work is seen, and none of the rest is done."""
    await scene.loaded("long")
    async with scene.prompting() as client:
        entry = await only(scene.daemon, "prefill")
        while entry["prompt"]["processed"] == 0:
            entry = await only(scene.daemon, "prefill")
        assert entry["prompt"]["processed"] < entry["prompt"]["total"]
        assert entry["prompt"]["total"] > PROMPT
        left = now()
        await cancel(scene.daemon, entry["id"])
        with trio.fail_after(LET_GO):
            assert (await client.status(), await client.whole()) == (499, CANCELED)
        await scene.let_go(left)


async def test_while_it_waits_for_a_slot_and_for_another_to_go(scene: Scene) -> None:
    """What is listed is what the scheduler says; ending one leaves the others as they are."""
    await scene.loaded("long")
    async with scene.chatting() as running, scene.client() as second, scene.client() as third:
        await second.post("/api/chat", model="long", messages=MESSAGES)
        await scene.reached("no slot yet")
        await third.post("/v1/chat/completions", model="other", messages=MESSAGES)
        await scene.reached(r"waits for other:latest: runners that must make room")
        one, two, three = await requests(scene.daemon)
        assert [entry["stage"] for entry in (one, two, three)] == [
            "generating",
            "waiting for slot",
            "waiting for drain",
        ]
        assert two["waiting"]["position"] == three["waiting"]["position"] == 1
        assert three["waiting"] | {"seconds": 0, "since": ""} == {
            "because": "runners that must make room are still busy",
            "since": "",
            "seconds": 0,
            "position": 1,
            "request": "",
            "generation": one["generation"],
            "model": "long:latest",
            "resource": "models",
            "short": 1,
        }
        for entry, client in ((three, third), (two, second)):
            await cancel(scene.daemon, entry["id"])
            with trio.fail_after(LET_GO):
                assert await client.status() == 499
                body = await client.whole()
            assert body == CANCELED or body["error"]["message"] == "request canceled"
        assert [entry["id"] for entry in await requests(scene.daemon)] == [one["id"]]
        assert (await running.record() or {})["message"]["content"]
        await cancel(scene.daemon, one["id"])
        assert (await running.records())[-1] == CANCELED


async def test_during_a_load(scene: Scene) -> None:
    """R03: nobody else waits for it, so the load is aborted."""
    await scene.unloaded()
    with HeldRunner(scene.daemon) as held:
        async with scene.client() as client:
            await client.post("/api/generate", model="other", prompt="w1")
            child = await held.caught()
            entry = await only(scene.daemon, "waiting for load")
            await cancel(scene.daemon, entry["id"])
            with trio.fail_after(LET_GO):
                assert (await client.status(), await client.whole()) == (499, CANCELED)
            held.let_go()
            await until(lambda: not child.is_running(), LET_GO, lambda: scene.daemon.log)


async def test_a_client_that_reads_nothing(scene: Scene) -> None:
    """R74: the runner is not held up by it for longer than it gets to read its last record."""
    await scene.loaded("long")
    async with ApiClient(scene.daemon.port, receive_buffer=4096) as client:
        await client.post("/api/chat", model="long", messages=MESSAGES, options=STORY)
        entry = await only(scene.daemon, "generating")
        await _stalled(scene)
        left = now()
        await cancel(scene.daemon, entry["id"])
        assert seconds(left, await scene.log.wait_for(r"^POST /api/chat 499 ", within=LET_GO)) < LET_GO
        with trio.fail_after(LET_GO):
            await client.ended()
    assert not scene.log.matching("SIG")


async def _stalled(scene: Scene) -> None:
    """Its tokens have stopped to come: every buffer up to the client is full."""
    before = -1
    with trio.fail_after(REACHED):
        while (entry := await only(scene.daemon, "generating"))["tokens"] != before:
            before = entry["tokens"]
            await trio.sleep(0.3)


async def gone(scene: Scene) -> None:
    """No runner is left, and so nothing that it has begun."""
    await until(lambda: not scene.daemon.children(), LET_GO, lambda: scene.daemon.log)
    await until(scene.log.handlers_ended, LET_GO, lambda: scene.log.text)
    scene.log.mark()


async def test_a_model_is_stopped_by_force(scene: Scene) -> None:
    """I04: whoever uses it, or waits for a slot of it, gets one error; it loads again for whoever comes."""
    await scene.loaded("long")
    port = scene.daemon.port
    async with scene.chatting() as running, scene.client() as waiting:
        await waiting.post("/v1/chat/completions", model="long", messages=MESSAGES, stream=True)
        await scene.reached("no slot yet")
        (pid,) = [child.pid for child in scene.daemon.children()]
        status, answer = await ask(port, "/api/stop", within=LET_GO, model="long", mode="force")
        assert status == 200
        (stopped,) = answer["stopped"]
        assert (stopped["state"], stopped["pid"], stopped["requests"]) == ("ready", pid, 2)
        with trio.fail_after(LET_GO):
            assert (await running.records())[-1] == STOPPED
            assert await waiting.status() == 503
            assert (await waiting.whole())["error"]["message"] == "the model was stopped"
    await gone(scene)
    status, answer = await ask(port, "/api/stop", within=LET_GO, model="long", mode="force")
    assert (status, answer["stopped"], answer["message"]) == (200, [], "long is not loaded")
    await scene.answers("long")


async def test_a_model_is_drained(scene: Scene) -> None:
    """Its request goes on to the end, and then it is gone."""
    await scene.loaded("long")
    async with scene.chatting() as running:
        status, answer = await ask(scene.daemon.port, "/api/stop", within=LET_GO, model="long")
        assert (status, answer["mode"], answer["stopped"][0]["requests"]) == (200, "drain", 1)
        assert (await running.record() or {})["message"]["content"]
        assert scene.daemon.children()
    await gone(scene)
