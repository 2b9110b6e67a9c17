"""/api/pull and /api/push: lines as clients expect them, and a transfer that lives as long as its request."""

from __future__ import annotations

import random

import pytest
import trio

from tests.support.api_description import check_described
from tests.support.asgi_client import Answer, send
from tests.support.fake_registry import Reaction
from tests.support.fake_scheduler import FakeScheduler
from tests.support.until import until
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.server.app import create_app
from trio_ollama.server.asgi import App
from trio_ollama.settings import Settings

from .conftest import SOON, Here

DATA = random.Random(7).randbytes(1_000_000)


@pytest.fixture
def app(here: Here) -> App:
    return create_app(
        settings=Settings(),
        scheduler=FakeScheduler(),  # type: ignore[arg-type]
        store=here.store,
        metadata_cache=MetadataCache(),
        registry=here.registry,
    )


async def post(app: App, path: str, **body: object) -> Answer:
    with trio.fail_after(SOON):
        answer = await send(app, "POST", path, body)
    assert answer.complete
    check_described("POST", path, answer)
    return answer


async def test_a_pull_and_a_push_line_by_line(app: App, here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    model = f"{here.remote.host}/library/tiny"
    answer = await post(app, "/api/pull", model=model)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert answer.lines[0] == {"status": "pulling manifest"}
    begin = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": 1_000_000}
    of_it = [line for line in answer.lines if line.get("digest") == digest]
    assert of_it[-1] == begin | {"completed": 1_000_000}
    assert all(line.get("completed") != 0 for line in of_it), "absent while it is 0"
    ends = ["verifying sha256 digest", "writing manifest", "success"]
    assert answer.lines[-3:] == [{"status": status} for status in ends]
    assert (await post(app, "/api/push", name=model, insecure=True)).lines[-1] == {"status": "success"}


@pytest.mark.parametrize("path", ["/api/pull", "/api/push"])
async def test_without_a_stream_the_last_word_is_the_answer(app: App, here: Here, path: str) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    model = f"{here.remote.host}/library/tiny"
    await post(app, "/api/pull", model=model)
    answer = await post(app, path, model=model, stream=False)
    assert (answer.status, answer.json) == (200, {"status": "success"})


async def test_errors_are_the_last_line_or_a_status(app: App, here: Here) -> None:
    model = f"{here.remote.host}/library/nothing"
    error = {"error": "pull model manifest: file does not exist"}
    answer = await post(app, "/api/pull", model=model)
    assert (answer.status, answer.lines) == (200, [{"status": "pulling manifest"}, error])
    answer = await post(app, "/api/pull", model=model, stream=False)
    assert (answer.status, answer.json) == (500, error)
    answer = await post(app, "/api/push", model=model)
    statuses = ["retrieving manifest", "couldn't retrieve manifest"]
    assert answer.lines[:2] == [{"status": status} for status in statuses]
    assert answer.lines[2:] == [{"error": f"model '{model}:latest' not found"}]


@pytest.mark.parametrize(
    ("path", "name", "status", "text"),
    [
        ("/api/pull", "", 400, "invalid model name"),
        ("/api/pull", "a//b", 400, "invalid model name"),
        ("/api/push", "", 400, "model is required"),
        ("/api/push", "a:", 400, "invalid model name"),
        ("/api/pull", "a:cloud", 403, "ollama cloud is disabled: remote model is unavailable"),
    ],
)
async def test_names_that_cannot_be_used(app: App, path: str, name: str, status: int, text: str) -> None:
    answer = await post(app, path, model=name)
    assert (answer.status, answer.json) == (status, {"error": text})


async def test_a_client_that_leaves_ends_its_transfer(app: App, here: Here) -> None:
    here.remote.add_model("library/tiny:latest", DATA)
    here.remote.react = lambda request: Reaction(hold=1000) if request.is_part else None
    body = {"model": f"{here.remote.host}/library/tiny"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, app, "POST", "/api/pull", body)
        await until(lambda: len(here.remote.parts()) == 4, SOON, lambda: "not asked")
        nursery.cancel_scope.cancel()
    await until(lambda: not here.remote.connections, SOON, lambda: "it goes on for nobody")
    assert "-partial" in here.files()


async def test_a_client_that_does_not_read_holds_nothing_up_and_misses_only_what_is_old(app: App, here: Here) -> None:
    (digest,) = here.remote.add_model("library/tiny:latest", DATA)
    answer, go = Answer(), trio.Event()
    body = {"model": f"{here.remote.host}/library/tiny"}

    async def read_one_and_wait() -> None:
        await go.wait()

    async def ask() -> None:
        await send(app, "POST", "/api/pull", body, answer=answer, on_chunk=read_one_and_wait)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await until(here.store.list, SOON, lambda: "the model never came")
        assert len(answer.chunks) == 1
        go.set()
    assert [line["status"] for line in answer.lines].count(f"pulling {digest[7:19]}") <= 2
    assert answer.lines[-1] == {"status": "success"}
