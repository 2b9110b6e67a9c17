"""Ids of requests, the list of those that are served, and cancelling one by its id."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

from tests.support.asgi_client import Answer, send
from tests.support.endings import ending
from tests.support.fake_scheduler import chat_events
from trio_ollama.scheduler import FOREVER, Demand, ForcedStopError, ModelFacts, QueueFullError, RequestView
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.stages import Stage
from trio_ollama.server.services import Services

from .conftest import Daemon
from .test_finality import REQUESTS, play, tokens

EMBED: dict[str, tuple[str, dict[str, Any]]] = {
    "embed": ("/api/embed", {"model": "vectors", "input": "a"}),
    "embeddings": ("/api/embeddings", {"model": "vectors", "prompt": "a"}),
    "openai embeddings": ("/v1/embeddings", {"model": "vectors", "input": "a"}),
}
COUNT = {"count": ("/v1/messages/count_tokens", {"model": "tiny", "messages": [{"role": "user", "content": "a"}]})}
ALL = {**REQUESTS, **EMBED, **COUNT}
NOBODY = Demand(ModelFacts(key="", name="", path="", file_size=0, layers=0))
FRESH = re.compile("req_[0-9a-f]{24}")


def waits(stage: Stage, **more: Any) -> RequestView:
    return RequestView(**{"asker": None, "seq": 0, "demand": NOBODY, "stage": stage, **more})


def registry(daemon: Daemon) -> Services:
    found: Services = daemon.app.extensions["trio_ollama"]
    return found


async def listed(daemon: Daemon) -> list[dict[str, Any]]:
    answer = await send(daemon.app, "GET", "/api/requests")
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.json["requests"]
    return found


async def cancel(daemon: Daemon, id_: str) -> Answer:
    return await send(daemon.app, "DELETE", f"/api/requests/{id_}")


@asynccontextmanager
async def under_way(daemon: Daemon, path: str, body: object, id_: str = "mine") -> AsyncIterator[Answer]:
    """A request that has come as far as its script lets it; at the end it must have ended by itself."""
    answer = Answer()
    async with trio.open_nursery() as nursery:
        with trio.fail_after(10):

            async def ask() -> None:
                await send(daemon.app, "POST", path, body, headers=[("x-request-id", id_)], answer=answer)

            nursery.start_soon(ask)
            await daemon.scheduler.waiting.wait()
            daemon.scheduler.waiting = trio.Event()
            yield answer
            while not answer.complete:  # noqa: ASYNC110 - bounded above
                await trio.lowlevel.checkpoint()


# -- ids ------------------------------------------------------------------------------------------------------------


def answers(daemon: Daemon) -> None:
    daemon.scheduler.answers = {
        "/v1/embeddings": lambda body: {"data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 1}},
        "/apply-template": lambda body: {"prompt": "a"},
        "/tokenize": lambda body: {"tokens": [1]},
    }


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("refusal", [None, QueueFullError()])
async def test_every_answer_has_an_id(daemon: Daemon, kind: str, refusal: Exception | None) -> None:
    answers(daemon)
    play(daemon, [*tokens(kind, "a")], ForcedStopError("the model was stopped"))
    daemon.scheduler.refusal = refusal
    given = await daemon.post(*ALL[kind], headers=[("x-request-id", "Root=1-6789/abc+d==")])
    assert given.headers["x-request-id"] == "Root=1-6789/abc+d=="
    one, two = await daemon.post(*ALL[kind]), await daemon.post(*ALL[kind])
    assert FRESH.fullmatch(one.headers["x-request-id"])
    assert one.headers["x-request-id"] != two.headers["x-request-id"]


@pytest.mark.parametrize("body", [b"", b"{", {"model": "nobody", "prompt": "a", "messages": [{"role": "user"}]}])
@pytest.mark.parametrize("kind", ["chat", "openai", "anthropic", "embed"])
async def test_so_has_a_refusal(daemon: Daemon, kind: str, body: object) -> None:
    answer = await daemon.post(ALL[kind][0], body, headers=[("x-request-id", "mine")])
    assert answer.status >= 400
    assert answer.headers["x-request-id"] == "mine"


@pytest.mark.parametrize(
    "id_", ["", "a b", "a\tb", "/a", "é", "x" * 129, "a\x7f"], ids=["none", "blank", "tab", "slash", "é", "long", "del"]
)
async def test_an_id_that_is_none_gives_way_to_a_fresh_one(daemon: Daemon, id_: str) -> None:
    answer = await daemon.post(*ALL["chat"], headers=[("x-request-id", id_)])
    assert FRESH.fullmatch(answer.headers["x-request-id"])
    answer = await daemon.post(*ALL["chat"], headers=[("x-request-id", "x" * 128)])
    assert answer.headers["x-request-id"] == "x" * 128


async def test_other_routes_have_none(daemon: Daemon) -> None:
    answer = await daemon.send("GET", "/api/ps", headers=[("x-request-id", "mine")])
    assert "x-request-id" not in answer.headers


async def test_anthropics_id_is_the_same(daemon: Daemon) -> None:
    answer = await daemon.post("/v1/messages", {"model": "tiny"}, headers=[("x-request-id", "mine")])
    assert answer.headers["request-id"] == answer.headers["x-request-id"] == answer.json["request_id"] == "mine"


# -- the list -------------------------------------------------------------------------------------------------------


async def test_nobody_is_there(daemon: Daemon) -> None:
    assert await listed(daemon) == []
    await daemon.post(*ALL["chat"])
    await daemon.post("/api/chat", b"{")
    assert await listed(daemon) == []
    assert len(registry(daemon).requests) == 0


async def test_who_waits_for_what_and_why(daemon: Daemon) -> None:
    """I20."""
    began = datetime.now(UTC)
    now = round(trio.current_time() * 1e9)
    daemon.scheduler.queue = [
        waits(
            Stage.WAITING_FOR_DRAIN,
            seq=4,
            because=Because.EVICTING_BUSY,
            position=1,
            by=2,
            of_model="large:latest",
            resource="GPU-0",
            short=123,
            since=now - 5 * 10**9,
        ),
        waits(Stage.QUEUED, seq=5, because=Because.BEHIND_OWN_MODEL, position=2, by=4, since=now),
        waits(Stage.WAITING_FOR_SLOT, seq=6, position=3, gen=7, of_model="tiny:latest", since=now),
        waits(Stage.QUEUED, because=Because.MEASURING),
    ]
    async with trio.open_nursery() as nursery:
        for (path, body), id_ in zip((ALL["chat"], ALL["openai"], ALL["anthropic"], ALL["embed"]), "abcd", strict=True):
            asked = body | ({"keep_alive": {"a": "2m", "d": -1}[id_]} if id_ in "ad" else {})
            nursery.start_soon(ask_as, daemon, path, asked, id_)
            await daemon.scheduler.waiting.wait()
            daemon.scheduler.waiting = trio.Event()
        one, two, three, four = await listed(daemon)
        nursery.cancel_scope.cancel()
    assert await listed(daemon) == []

    assert (one["id"], one["method"], one["path"], one["dialect"]) == ("a", "POST", "/api/chat", "ollama")
    assert (one["client"], one["model"]) == ("127.0.0.1:50000", "tiny:latest")
    assert (one["stage"], one["number"], one["generation"], one["tokens"]) == ("waiting for drain", 4, None, 0)
    assert one["keep_alive"] == 120
    assert began <= datetime.fromisoformat(one["arrived_at"]) <= datetime.now(UTC)
    assert 0 <= one["seconds"] < 60
    waiting = one["waiting"]
    assert 5 <= waiting.pop("seconds") < 60
    assert datetime.fromisoformat(waiting.pop("since")) < began
    assert waiting == {
        "because": "runners that must make room are still busy",
        "position": 1,
        "request": "",
        "generation": 2,
        "model": "large:latest",
        "resource": "GPU-0",
        "short": 123,
    }
    assert (two["dialect"], two["stage"], two["keep_alive"]) == ("openai", "queued", None)
    assert (two["waiting"]["request"], two["waiting"]["generation"], two["waiting"]["position"]) == ("a", None, 2)
    assert (three["dialect"], three["stage"]) == ("anthropic", "waiting for slot")
    assert (three["waiting"]["because"], three["waiting"]["model"]) == ("its runner has no slot free", "tiny:latest")
    assert (three["generation"], three["waiting"]["generation"]) == (7, 7)
    assert (four["stage"], four["number"], four["keep_alive"]) == ("measuring", 0, -1)


async def ask_as(daemon: Daemon, path: str, body: object, id_: str) -> None:
    await send(daemon.app, "POST", path, body, headers=[("x-request-id", id_)])


@pytest.mark.parametrize("kind", REQUESTS)
async def test_how_far_an_answer_is(daemon: Daemon, kind: str) -> None:
    path, body = REQUESTS[kind]
    progress: dict[str, Any] = {"prompt_progress": {"total": 50, "processed": 20, "cache": 0}, "content": ""}
    if kind != "raw":
        progress = {**progress, "choices": [{"index": 0, "delta": {"content": None}, "finish_reason": None}]}
    play(daemon, [progress], None)
    async with under_way(daemon, path, body):
        (entry,) = await listed(daemon)
        assert (entry["stage"], entry["tokens"], entry["generation"]) == ("prefill", 0, 1)
        assert entry["prompt"] == {"total": 50, "processed": 20}
        assert entry["waiting"] is None
        await cancel(daemon, "mine")
    play(daemon, [progress], tokens(kind, "a", "b"), tokens(kind, "c"), None)
    async with under_way(daemon, path, body):
        (entry,) = await listed(daemon)
        assert (entry["stage"], entry["tokens"]) == ("generating", 3)
        await cancel(daemon, "mine")


async def test_a_request_that_is_still_being_read(daemon: Daemon) -> None:
    """It is listed before it is known what it wants, and its client may leave."""
    await send(daemon.app, "POST", "/api/chat", b'{"model":', breaks_off=True)
    assert await listed(daemon) == []


async def test_for_ever_is_minus_one(daemon: Daemon) -> None:
    play(daemon, None)
    async with under_way(daemon, "/api/chat", REQUESTS["chat"][1] | {"keep_alive": FOREVER // 10**9 + 10}):
        (entry,) = await listed(daemon)
        assert entry["keep_alive"] == -1
        await cancel(daemon, "mine")


# -- cancelling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
async def test_canceled_while_it_waits(daemon: Daemon, kind: str) -> None:
    """Its client gets a status and an error object in its dialect; it holds nothing any more."""
    daemon.scheduler.queue = [waits(Stage.WAITING_FOR_LOAD, because=Because.LOADING)]
    async with under_way(daemon, *ALL[kind]) as answer:
        told_us = await cancel(daemon, "mine")
        assert told_us.status == 200
        (entry,) = told_us.json["canceled"]
        assert (entry["id"], entry["stage"]) == ("mine", "waiting for load")
    check_refusal(ALL[kind][0], answer)
    assert await listed(daemon) == []


def check_refusal(path: str, answer: Answer) -> None:
    assert answer.status == 499
    assert answer.headers["x-request-id"] == "mine"
    match answer.json:
        case {"type": "error", "error": error, "request_id": "mine"} if path.startswith("/v1/messages"):
            assert error["message"] == "request canceled"
        case {"error": {"message": text}} if path.startswith("/v1/"):
            assert text == "request canceled"
        case body:
            assert body == {"error": "request canceled"}


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_canceled_while_its_prompt_is_read(daemon: Daemon, kind: str, stream: bool) -> None:
    path, body = REQUESTS[kind]
    play(daemon, None)
    async with under_way(daemon, path, body | {"stream": stream}) as answer:
        assert not daemon.scheduler.idle
        await cancel(daemon, "mine")
    check_refusal(path, answer)
    assert daemon.scheduler.idle


@pytest.mark.parametrize("kind", REQUESTS)
async def test_canceled_in_the_middle_of_a_stream(daemon: Daemon, kind: str) -> None:
    """R75: what has been said stays said; one last record tells why there is no more."""
    play(daemon, tokens(kind, "a"), None)
    async with under_way(daemon, *REQUESTS[kind]) as answer:
        await cancel(daemon, "mine")
    assert answer.status == 200
    assert ending(kind, answer) == ("error", "request canceled")
    assert daemon.scheduler.idle


@pytest.mark.parametrize("kind", REQUESTS)
async def test_canceled_in_the_middle_of_an_answer_that_is_not_streamed(daemon: Daemon, kind: str) -> None:
    path, body = REQUESTS[kind]
    play(daemon, tokens(kind, "a"), None)
    async with under_way(daemon, path, body | {"stream": False}) as answer:
        await cancel(daemon, "mine")
    check_refusal(path, answer)
    assert daemon.scheduler.idle


async def test_what_it_held_is_free_before_its_client_hears_of_it(daemon: Daemon) -> None:
    play(daemon, None)
    seen: list[bool] = []

    class Watching(list[bytes]):
        def append(self, chunk: bytes) -> None:
            super().append(chunk)
            seen.append(daemon.scheduler.idle)

    async with under_way(daemon, *REQUESTS["chat"]) as answer:
        answer.chunks = Watching()
        await cancel(daemon, "mine")
    assert seen == [True]


async def test_only_that_one_ends(daemon: Daemon) -> None:
    """R09."""
    play(daemon, chat_events("a"), None)
    async with under_way(daemon, *REQUESTS["chat"], id_="one") as one:
        async with under_way(daemon, *REQUESTS["openai"], id_="two") as two:
            await cancel(daemon, "two")
        assert ending("openai", two) == ("error", "request canceled")
        assert [entry["id"] for entry in await listed(daemon)] == ["one"]
        assert not one.complete
        await cancel(daemon, "one")
    assert ending("chat", one) == ("error", "request canceled")


async def test_all_that_have_the_id_end(daemon: Daemon) -> None:
    play(daemon, chat_events("a"), None)
    async with under_way(daemon, *REQUESTS["chat"]) as one, under_way(daemon, *REQUESTS["chat"]) as two:
        assert len((await cancel(daemon, "mine")).json["canceled"]) == 2
    for answer in (one, two):
        assert ending("chat", answer) == ("error", "request canceled")


@pytest.mark.parametrize("id_", ["nobody", "req_0", "a/b", "%2Fa"])
async def test_whoever_is_not_there(daemon: Daemon, id_: str) -> None:
    await daemon.post(*REQUESTS["chat"], headers=[("x-request-id", id_)])
    answer = await daemon.send("DELETE", f"/api/requests/{id_}")
    assert (answer.status, answer.json) == (404, {"error": f"request '{id_}' not found"})


async def test_a_client_that_leaves_is_no_cancellation_of_ours(daemon: Daemon) -> None:
    """The outer cancellation goes on, also when both come in one step."""
    play(daemon, None)
    ended: list[str] = []

    async def ask() -> None:
        try:
            await send(daemon.app, "POST", *REQUESTS["chat"], headers=[("x-request-id", "mine")])
        except trio.Cancelled:
            ended.append("cancelled")
            raise

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await daemon.scheduler.waiting.wait()
        next(iter(registry(daemon).requests)).cancel()
        nursery.cancel_scope.cancel()
    assert ended == ["cancelled"]
    assert daemon.scheduler.idle
    assert await listed(daemon) == []


async def test_a_client_that_reads_nothing_is_cut_off(daemon: Daemon, autojump_clock: trio.testing.MockClock) -> None:
    """R74: it is blocked in a write, and its runner must not wait for it to read why."""
    play(daemon, chat_events("a"), None)
    full = trio.Event()
    answer = Answer()

    async def stuck() -> None:
        full.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            lambda: send(
                daemon.app,
                "POST",
                *REQUESTS["chat"],
                headers=[("x-request-id", "mine")],
                answer=answer,
                on_chunk=stuck,
            )
        )
        await full.wait()
        (entry,) = await listed(daemon)
        assert entry["stage"] == "generating"
        began = trio.current_time()
        await cancel(daemon, "mine")
        (entry,) = await listed(daemon)
        assert entry["stage"] == "canceled"
    assert trio.current_time() - began == pytest.approx(1.0)
    assert not answer.complete
    assert daemon.scheduler.idle
    assert await listed(daemon) == []


async def test_the_log_tells_both(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    play(daemon, chat_events("a"), None)
    with caplog.at_level(logging.DEBUG, "trio_ollama"):
        async with under_way(daemon, *REQUESTS["chat"]):
            await cancel(daemon, "mine")
    texts = [record.getMessage() for record in caplog.records]
    assert "mine is canceled: /api/chat of 127.0.0.1:50000, generating" in texts
    assert "mine is request 1 at the scheduler" in texts
