"""R75: every stream of every dialect ends with exactly one last record, whatever becomes of its runner, its client or
the daemon; or its connection is visibly cut. All dialects at once, with real runners."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import h11
import psutil
import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.asgi_client import Answer
from tests.support.daemon_log import DaemonLog
from tests.support.endings import ending, requests
from tests.support.real_daemon import RealDaemon
from tests.support.scripted_gguf import write_scripted_gguf
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import CHAT_TEMPLATE, write_tiny_gguf
from tests.support.until import until

from .conftest import ONE_THREAD

pytestmark = pytest.mark.real

ENDLESS: Final = 20_000
"""Tokens: many seconds of work."""
SOON: Final = 30.0
"""Seconds in which anything here happens, on a busy machine."""
GO_TEMPLATE: Final = "{{ range .Messages }}[{{ .Role }}] {{ .Content }}{{ end }}"
KINDS: Final = tuple(requests("", 0))
MID_STREAM: Final = "an error was encountered while running the model: "

End = tuple[str, str] | None
"""As `ending` has it; None: the connection was cut."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_models: Mapping[str, bytes]) -> Path:
    """`tiny`; `short`, whose context does not shift; `echo`, which says one thing only; `loud`, with long words.

    Prompts of `short-go` and `echo-go` are made by this server.
    """
    folder = tmp_path_factory.mktemp("endings")
    made = OllamaStore(folder / "models")
    made.add("tiny:latest", tiny_models["tiny"], params=ONE_THREAD)
    unshifting = {"model_families": ["llama", "deepseek2"]}
    made.add("short:latest", tiny_models["tiny"], params=ONE_THREAD | {"num_ctx": 256}, config=unshifting)
    bare = write_tiny_gguf(folder / "bare.gguf", seed=1, chat_template=False).read_bytes()
    made.add("short-go:latest", bare, params=ONE_THREAD | {"num_ctx": 256}, config=unshifting, template=GO_TEMPLATE)
    echo = write_scripted_gguf(folder / "echo", [" ha"], chat_template=CHAT_TEMPLATE, endless=True)
    bare_echo = write_scripted_gguf(folder / "echo-go", [" ha"], chat_template="", endless=True)
    made.add("echo-go:latest", bare_echo.read_bytes(), params=ONE_THREAD, template=GO_TEMPLATE)
    long_words = [f" {index}{'x' * 4_000}" for index in range(60)]
    loud = write_scripted_gguf(folder / "loud", long_words, chat_template=CHAT_TEMPLATE)
    for path in (echo, loud):
        made.add(f"{path.name}:latest", path.read_bytes(), params=ONE_THREAD)
    return made.root


def daemon_on(store: Path, **limits: str) -> RealDaemon:
    """With a slot for each dialect."""
    named = {f"TRIO_OLLAMA_{name}_TIMEOUT": limit for name, limit in limits.items()}
    return RealDaemon(store, OLLAMA_NUM_PARALLEL=str(len(KINDS)), **named)


@pytest.fixture(scope="module")
def daemon(store: Path) -> Iterator[RealDaemon]:
    with daemon_on(store, PROGRESS="1s") as daemon:
        yield daemon
        assert "Traceback" not in daemon.log


class Stream:
    """One client with one answer. Its id is its kind."""

    def __init__(self, kind: str, client: ApiClient) -> None:
        self.kind = kind
        self._client = client
        self._answer = Answer()

    async def begin(self) -> None:
        """The answer has begun."""
        assert await self._client.status() == 200
        data = await self._client.data()
        assert data is not None
        self._answer.chunks.append(data)

    async def end(self) -> End:
        """Read the rest."""
        try:
            while (data := await self._client.data()) is not None:
                self._answer.chunks.append(data)
        except (ConnectionError, h11.RemoteProtocolError):
            return None
        return ending(self.kind, self._answer)


@asynccontextmanager
async def streams(
    daemon: RealDaemon, model: str, limit: int = ENDLESS, *, receive_buffer: int | None = None
) -> AsyncIterator[list[Stream]]:
    """One stream of each dialect from one runner, all of them begun; with a `receive_buffer`, none is read yet."""
    found = []
    async with AsyncExitStack() as stack:
        for kind, (path, body) in requests(model, limit).items():
            client = await stack.enter_async_context(ApiClient(daemon.port, receive_buffer=receive_buffer))
            await client.send("POST", path, body, X_Request_Id=kind)
            found.append(Stream(kind, client))
        if receive_buffer is None:
            with trio.fail_after(SOON):
                async with trio.open_nursery() as nursery:
                    for stream in found:
                        nursery.start_soon(stream.begin)
        yield found


async def ends(found: list[Stream]) -> dict[str, End]:
    """How they all end, each read to its end at the same time."""
    how: dict[str, End] = {}

    async def read(stream: Stream) -> None:
        how[stream.kind] = await stream.end()

    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            for stream in found:
                nursery.start_soon(read, stream)
    return how


def all_end(how: str, text: str) -> dict[str, End]:
    return dict.fromkeys(KINDS, (how, text))


async def alive(daemon: RealDaemon, model: str = "tiny") -> None:
    """The next request is served, and nobody else is there."""
    options = {"num_predict": 3}
    status, answer = await ask(
        daemon.port, "/api/generate", within=SOON, model=model, prompt="w1", options=options, keep_alive=60
    )
    assert (status, answer["done"]) == (200, True)
    assert (await get(daemon.port, "/api/requests"))["requests"] == []


def only_runner(daemon: RealDaemon, log: DaemonLog) -> psutil.Process:
    """The one that was started since the log began."""
    pid = int(log.matching(r"is ready as generation \d+, pid \d+")[-1].text.partition("pid ")[2].partition(",")[0])
    return next(child for child in daemon.children() if child.pid == pid)


@asynccontextmanager
async def fresh_streams(daemon: RealDaemon) -> AsyncIterator[tuple[list[Stream], psutil.Process]]:
    """The same from a runner that nobody has used before; yields its process, too."""
    await ask(daemon.port, "/api/stop", within=SOON, model="tiny", mode="force")
    log = DaemonLog(daemon.log_path)
    async with streams(daemon, "tiny") as found:
        yield found, only_runner(daemon, log)
    await alive(daemon)


async def test_the_runner_is_killed(daemon: RealDaemon) -> None:
    async with fresh_streams(daemon) as (found, runner):
        runner.kill()
        for how, text in (await ends(found)).values():  # type: ignore[misc]
            assert how == "error"
            assert text.startswith(MID_STREAM)
            assert "signal SIGKILL" in text


async def test_the_runner_hangs(daemon: RealDaemon) -> None:
    """R81: somebody wants it gone, and it tells nothing any more."""
    async with fresh_streams(daemon) as (found, runner):
        runner.suspend()
        await ask(daemon.port, "/api/stop", within=SOON, model="tiny")
        assert await ends(found) == all_end("error", f"{MID_STREAM}no answer from the model for 1 s")
    assert not runner.is_running()


async def test_the_runner_hangs_and_nobody_wants_it_gone(store: Path) -> None:
    """R81: who waits for it is told in the end; it is replaced, as it does not let go either (R08)."""
    with daemon_on(store, SILENCE="2s", ABORT="1s") as daemon:
        async with fresh_streams(daemon) as (found, runner):
            runner.suspend()
            assert await ends(found) == all_end("error", f"{MID_STREAM}no answer from the model for 2 s")
            await until(lambda: not runner.is_running(), SOON, lambda: daemon.log)
        assert "Traceback" not in daemon.log


async def test_the_model_is_stopped_by_force(daemon: RealDaemon) -> None:
    async with fresh_streams(daemon) as (found, _):
        await ask(daemon.port, "/api/stop", within=SOON, model="tiny", mode="force")
        assert await ends(found) == all_end("error", "the model was stopped")


async def test_they_are_cancelled_by_their_ids(daemon: RealDaemon) -> None:
    async with streams(daemon, "tiny") as found:
        runners = {child.pid for child in daemon.children()}
        for kind in KINDS:
            async with ApiClient(daemon.port) as client:
                await client.send("DELETE", f"/api/requests/{kind}")
                assert await client.status() == 200
        assert await ends(found) == all_end("error", "request canceled")
    await alive(daemon)
    assert {child.pid for child in daemon.children()} == runners


@pytest.mark.parametrize("model", ["short", "short-go"])
async def test_the_context_is_full(daemon: RealDaemon, model: str) -> None:
    async with streams(daemon, model) as found:
        assert await ends(found) == all_end("done", "length")


@pytest.mark.parametrize("model", ["echo", "echo-go"])
async def test_equal_tokens_without_end(daemon: RealDaemon, model: str) -> None:
    """Where the runner makes the prompt of a conversation it may repeat itself to its limit; else thirty times."""
    async with streams(daemon, model, 64) as found:
        assert await ends(found) == all_end("done", "length")


async def test_clients_that_read_late(daemon: RealDaemon) -> None:
    """The daemon can send no more for a while, and the runner is not asked for more; then all of it comes."""
    async with streams(daemon, "loud", receive_buffer=4096) as found:
        await _stuck(daemon)
        assert await ends(found) == all_end("done", "stop")


async def _stuck(daemon: RealDaemon) -> None:
    """None of the answers goes on, and none is whole."""
    seen: list[list[int]] = []
    with trio.fail_after(SOON):
        await trio.lowlevel.checkpoint()
        while len(seen) < 10 or any(tokens != seen[-1] for tokens in seen[-10:]):
            entries = (await get(daemon.port, "/api/requests"))["requests"]
            assert {entry["id"] for entry in entries} == set(KINDS)
            seen.append([entry["tokens"] for entry in entries] if _generating(entries) else [len(seen)])
            await trio.sleep(0.02)


def _generating(entries: list[dict[str, Any]]) -> bool:
    return {entry["stage"] for entry in entries} == {"generating"}


async def test_clients_that_read_nothing_and_then_the_end_of_the_daemon(
    store: Path, record_property: Callable[[str, object], None]
) -> None:
    """R74: they are cut off. I25: who reads is told of the end, each in its own way."""
    with daemon_on(store, STALL="1s", DRAIN="1s") as daemon:
        log = DaemonLog(daemon.log_path)
        async with streams(daemon, "loud", receive_buffer=4096) as found:
            await log.wait_for(r"^POST \S+ 499 ", within=SOON, count=len(KINDS))
            assert await ends(found) == dict.fromkeys(KINDS)
        async with streams(daemon, "tiny") as found:
            daemon.signal(signal.SIGTERM)
            begun = trio.current_time()
            assert await ends(found) == all_end("error", "server is shutting down")
            record_property("told", trio.current_time() - begun)
        assert await trio.to_thread.run_sync(daemon.wait, SOON) == 0
        assert "Traceback" not in daemon.log


async def test_the_daemon_leaves_at_once(store: Path) -> None:
    """A second signal waits for nobody: what is under way is cut, and looks it."""
    with daemon_on(store, DRAIN="1m") as daemon:
        log = DaemonLog(daemon.log_path)
        async with streams(daemon, "tiny") as found:
            runners = daemon.children()
            daemon.signal(signal.SIGTERM)
            await log.wait_for("shutting down: ", within=SOON)
            daemon.signal(signal.SIGTERM)
            assert await ends(found) == dict.fromkeys(KINDS)
        assert await trio.to_thread.run_sync(daemon.wait, SOON) == 0
        await until(lambda: not any(runner.is_running() for runner in runners), SOON, lambda: daemon.log)
        assert "Traceback" not in daemon.log
