"""A client that leaves ends its request at once and the runner's work for it soon, whatever was going on (R72, 9.7).

Every test brings one client to a certain stage and lets it leave, by FIN or by RST. Then its handler must have ended
(the access log's 499), its place or lease be gone (the scheduler's log), the runner have let go of its slot, and
others go on as if nothing had been.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta

import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.daemon_log import DaemonLog, Entry
from tests.support.held_runner import HeldRunner
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import words, write_tiny_gguf
from tests.support.until import until

from .conftest import ONE_THREAD

SOON = 5.0
"""Seconds. The handler ends within a few milliseconds; a busy machine may take this long."""
LET_GO = 5.0
"""Seconds for the runner: two batches or one input, tenths of a second when nothing else runs."""
REACHED = 30.0
"""Seconds to bring a client to its stage."""

CONTEXT = 32_768
PROMPT = 20_000
"""Tokens: seconds of work, more than a hundred batches."""
STORY = {"num_predict": 30_000}
"""Half a minute of work, or more."""
INPUT, INPUTS = 2_000, 100

STARTED = r"task\s+\d+ \| processing task"
STOPPED = r"task\s+\d+ \| stop processing: n_tokens = (\d+)"
PREFILLING = r"cached n_tokens = \d{3,}, memory_seq_rm"
DECODING = r"init sampler"

Leave = Callable[[ApiClient], None]
LEAVE = pytest.mark.parametrize("leave", [ApiClient.close, ApiClient.reset], ids=["FIN", "RST"])
RecordProperty = Callable[[str, object], None]


class Scene:
    """A daemon, its log since the test began, and clients at work."""

    fresh = itertools.count()

    def __init__(self, daemon: RealDaemon) -> None:
        self.daemon = daemon
        self.log = DaemonLog(daemon.log_path)

    def client(self) -> ApiClient:
        return ApiClient(self.daemon.port)

    async def reached(self, pattern: str, count: int = 1) -> None:
        """A stage is reached when the log says so."""
        await self.log.wait_for(pattern, within=REACHED, count=count)

    async def loaded(self, model: str) -> None:
        """`model` is in memory and idle; the log begins after that."""
        await self.answers(model)
        await self.quiet()
        self.log.mark()

    async def unloaded(self) -> None:
        """No model is in memory; the log begins after that."""
        with trio.fail_after(REACHED):
            for model in (await get(self.daemon.port, "/api/ps"))["models"]:
                await ask(self.daemon.port, "/api/generate", model=model["name"], keep_alive=0)
        await until(lambda: not self.daemon.children(), LET_GO, lambda: f"no runner: {self.daemon.log}")
        self.log.mark()

    async def quiet(self) -> None:
        """Nobody waits, holds or works."""
        await until(
            lambda: not self.log.open_requests() and not self.tasks and self.log.handlers_ended(),
            LET_GO,
            lambda: f"all at rest, but {self.log.open_requests()} and {self.tasks} tasks:\n{self.log.text}",
        )

    async def answers(self, model: str, within: float = REACHED) -> None:
        """A normal request is served."""
        question = {"model": model, "prompt": "w1", "options": {"num_predict": 4}}
        status, answer = await ask(self.daemon.port, "/api/generate", within=within, **question)
        assert status == 200, answer
        assert answer["eval_count"] == 4

    @asynccontextmanager
    async def chatting(self, *, stream: bool = True) -> AsyncIterator[ApiClient]:
        """A client with a long answer under way; of a stream it has read the begin."""
        running = len(self.log.matching(DECODING))
        async with self.client() as client:
            messages = [{"role": "user", "content": "w1"}]
            await client.post("/api/chat", model="long", messages=messages, options=STORY, stream=stream)
            with trio.fail_after(REACHED):
                if stream:
                    assert await client.status() == 200
                    assert (await client.record() or {})["message"]["content"]
                else:
                    await self.reached(DECODING, running + 1)
            yield client

    @asynccontextmanager
    async def prompting(self) -> AsyncIterator[ApiClient]:
        """A client whose long prompt is being processed."""
        begin = next(self.fresh)  # no prompt begins like the one before: the runner would know its result
        async with self.client() as client:
            prompt = f"w{begin % 10} w{begin // 10 % 10} {words(PROMPT)}"
            await client.post("/api/generate", model="long", prompt=prompt, raw=True, options=STORY)
            await self.reached(PREFILLING, 3)
            yield client

    async def ended(self, left: datetime) -> float:
        """The handler of the client that left has ended and holds nothing; returns how many seconds it took."""
        return seconds(left, await self.log.wait_for(r"^POST \S+ 499 ", within=SOON))

    async def let_go(self, left: datetime, count: int = 1) -> float:
        """The runner has stopped to work on it."""
        entry = await self.log.wait_for(STOPPED, within=LET_GO, count=count)
        return seconds(left, entry)

    @property
    def tasks(self) -> int:
        """Tasks that the runner has taken on and not given up."""
        return len(self.log.matching(STARTED)) - len(self.log.matching(STOPPED))


def now() -> datetime:
    return datetime.now().astimezone()


def seconds(left: datetime, entry: Entry) -> float:
    return (entry.at - left) / timedelta(seconds=1)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDaemon]:
    """A daemon for all tests here, with room for one model at a time, which has two slots."""
    folder = tmp_path_factory.mktemp("disconnects")
    store = OllamaStore(folder / "models")
    long = write_tiny_gguf(folder / "long.gguf", name="long", seed=4, context=CONTEXT)
    other = write_tiny_gguf(folder / "other.gguf", name="other", seed=5)
    embedder = write_tiny_gguf(folder / "embedder.gguf", name="embedder", seed=6, pooling="mean")
    store.add("long:latest", long.read_bytes(), params={**ONE_THREAD, "num_ctx": CONTEXT})
    store.add("other:latest", other.read_bytes(), params=ONE_THREAD)
    store.add("embedder:latest", embedder.read_bytes(), params=ONE_THREAD)
    with RealDaemon(store.root, OLLAMA_MAX_LOADED_MODELS="1", OLLAMA_NUM_PARALLEL="2") as daemon:
        yield daemon


@pytest.fixture
async def scene(daemon: RealDaemon) -> AsyncIterator[Scene]:
    scene = Scene(daemon)
    yield scene
    await scene.quiet()


# -- with a slot of the runner ----------------------------------------------------------------------------------


@asynccontextmanager
async def streaming(scene: Scene) -> AsyncIterator[ApiClient]:
    async with scene.chatting() as client:
        yield client


@asynccontextmanager
async def streaming_beside_another(scene: Scene) -> AsyncIterator[ApiClient]:
    async with scene.chatting(), scene.chatting() as client:
        yield client


@asynccontextmanager
async def not_streaming(scene: Scene) -> AsyncIterator[ApiClient]:
    async with scene.chatting(stream=False) as client:
        yield client


@asynccontextmanager
async def not_streaming_beside_another(scene: Scene) -> AsyncIterator[ApiClient]:
    async with scene.chatting(), scene.chatting(stream=False) as client:
        yield client


@asynccontextmanager
async def prefill(scene: Scene) -> AsyncIterator[ApiClient]:
    async with scene.prompting() as client:
        yield client


@asynccontextmanager
async def prefill_beside_another(scene: Scene) -> AsyncIterator[ApiClient]:
    async with scene.chatting(), scene.prompting() as client:
        yield client


WORKING = pytest.mark.parametrize(
    "stage",
    [
        streaming,
        streaming_beside_another,
        not_streaming,
        not_streaming_beside_another,
        prefill,
        prefill_beside_another,
    ],
)


@LEAVE
@WORKING
async def test_the_runner_stops_to_work_for_a_client_that_left(
    stage: Callable[[Scene], AbstractAsyncContextManager[ApiClient]],
    leave: Leave,
    scene: Scene,
    record_property: RecordProperty,
) -> None:
    await scene.loaded("long")
    async with stage(scene) as client:
        others = len(scene.log.open_requests()) - 1
        left = now()
        leave(client)
        record_property("handler ended", await scene.ended(left))
        assert len(scene.log.open_requests()) == others
        record_property("slot free", await scene.let_go(left))
        assert scene.tasks == others
        await scene.answers("long", within=LET_GO)  # the other one has its slot: there is one for us
    tokens = int(scene.log.matching(STOPPED)[0].text.partition("n_tokens = ")[2].partition(",")[0])
    assert tokens < (PROMPT if "prefill" in stage.__name__ else STORY["num_predict"])


@LEAVE
async def test_an_embedding_stops_with_its_current_input(
    leave: Leave, scene: Scene, record_property: RecordProperty
) -> None:
    await scene.unloaded()
    async with scene.client() as client:
        await client.post("/api/embed", model="embedder", input=[words(INPUT)] * INPUTS)
        await scene.reached(STARTED, count=3)
        left = now()
        leave(client)
        record_property("handler ended", await scene.ended(left))
        assert not scene.log.open_requests()
        begun = len(scene.log.matching(STARTED))
        record_property("slot free", await scene.let_go(left, begun))
    status, answer = await ask(scene.daemon.port, "/api/embed", within=LET_GO, model="embedder", input="w1")
    assert status == 200, answer
    # One input may have been on its way to the runner when the client left; the last one is that of this request.
    assert len(scene.log.matching(STARTED)) <= begun + 2 < INPUTS


# -- without one ------------------------------------------------------------------------------------------------


@LEAVE
async def test_waiting_for_a_slot(leave: Leave, scene: Scene, record_property: RecordProperty) -> None:
    await scene.loaded("long")
    async with scene.chatting(), scene.chatting(), scene.client() as client:
        await client.post("/api/generate", model="long", prompt="w1")
        await scene.reached(r"gets long:latest .* no slot yet")
        left = now()
        leave(client)
        record_property("handler ended", await scene.ended(left))
        assert len(scene.log.open_requests()) == 2
        assert len(scene.log.matching(STARTED)) == 2, "the runner heard of a request that had no slot"
    await scene.answers("long", within=LET_GO)


@LEAVE
async def test_loading_for_nobody_else(leave: Leave, scene: Scene, record_property: RecordProperty) -> None:
    """The load is given up with its only reason (R03), and the next one begins anew."""
    await scene.unloaded()
    with HeldRunner(scene.daemon) as load:
        async with scene.client() as client:
            await client.post("/api/chat", model="long", messages=[{"role": "user", "content": "w1"}])
            runner = await load.caught()
            left = now()
            leave(client)
            record_property("handler ended", await scene.ended(left))
            assert not scene.log.open_requests()
    await until(lambda: not runner.is_running(), LET_GO, lambda: f"the end of {runner}")
    assert not scene.log.matching("is ready as generation")
    assert (await get(scene.daemon.port, "/api/ps"))["models"] == []
    await scene.answers("long")


@LEAVE
async def test_loading_for_others_too(leave: Leave, scene: Scene, record_property: RecordProperty) -> None:
    """The load goes on, whoever has caused it (R04)."""
    await scene.unloaded()
    async with scene.client() as first, scene.client() as second:
        with HeldRunner(scene.daemon) as load:
            await first.post("/api/generate", model="long")
            runner = await load.caught()
            await second.post("/api/generate", model="long", prompt="w1", stream=False, options={"num_predict": 4})
            await scene.reached(r"^request \d+ waits for long:latest", 2)
            left = now()
            leave(first)
            record_property("handler ended", await scene.ended(left))
            assert len(scene.log.open_requests()) == 1
        with trio.fail_after(REACHED):
            assert await second.status() == 200
            assert (await second.whole())["eval_count"] == 4
    assert [child.pid for child in scene.daemon.children()] == [runner.pid]
    assert len(scene.log.matching("loading long:latest as generation")) == 1


@LEAVE
async def test_queued_behind_the_load_of_another_model(
    leave: Leave, scene: Scene, record_property: RecordProperty
) -> None:
    await scene.unloaded()
    async with scene.client() as loads, scene.client() as client:
        with HeldRunner(scene.daemon) as load:
            await loads.post("/api/generate", model="other")
            await load.caught()
            await client.post("/api/generate", model="long", prompt="w1")
            await scene.reached(r"^request \d+ waits for long:latest")
            left = now()
            leave(client)
            record_property("handler ended", await scene.ended(left))
            assert len(scene.log.open_requests()) == 1
        with trio.fail_after(REACHED):
            assert await loads.status() == 200
    assert not scene.log.matching("loading long:latest")
    assert [model["name"] for model in (await get(scene.daemon.port, "/api/ps"))["models"]] == ["other:latest"]


@LEAVE
async def test_queued_until_a_busy_model_makes_room(
    leave: Leave, scene: Scene, record_property: RecordProperty
) -> None:
    """Its claim on the busy runner goes with it: later requests for that model are served at once again (R02)."""
    await scene.loaded("long")
    async with scene.chatting(), scene.client() as client:
        await client.post("/api/generate", model="other", prompt="w1")
        await scene.reached(r"^request \d+ waits for other:latest")
        left = now()
        leave(client)
        record_property("handler ended", await scene.ended(left))
        assert len(scene.log.open_requests()) == 1
        await scene.answers("long", within=LET_GO)
    assert not scene.log.matching("goes for request")


@LEAVE
@pytest.mark.parametrize("model", ["long", "other"])
async def test_right_behind_its_request(leave: Leave, model: str, scene: Scene) -> None:
    """Wherever the request is by then: the handler ends, and nothing of it stays."""
    await scene.loaded("long")
    async with AsyncExitStack() as stack:
        for _ in range(10):
            client = await stack.enter_async_context(scene.client())
            await client.post("/api/generate", model=model, prompt=words(500), raw=True, options=STORY)
            leave(client)
        await scene.quiet()
    await scene.answers("long", within=REACHED)
