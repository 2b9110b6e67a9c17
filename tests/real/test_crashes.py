"""Runners that die or hang: whoever used one is told once, nobody else is touched, the next request is served."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.crowd import endless_chat
from tests.support.daemon_log import DaemonLog
from tests.support.held_runner import HeldRunner
from tests.support.real_daemon import RealDaemon
from tests.support.until import until

from .conftest import StartDaemon

RecordProperty = Callable[[str, object], None]

BUSY = 3
"""Times as long as it has to be may it take on a machine that does other things."""
FORGOTTEN = 1.0
SERVED = 30.0
MESSAGES = [{"role": "user", "content": "w1"}]
MID_STREAM = "an error was encountered while running the model: "
KILLED = "signal SIGKILL"
LOADING = "loading tiny:latest as generation"


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> RealDaemon:
    """Two slots, room for two models, and little patience with a runner that does not let go."""
    return start_daemon(
        OLLAMA_NUM_PARALLEL="2", OLLAMA_MAX_LOADED_MODELS="2", TRIO_OLLAMA_ABORT_TIMEOUT="1s", OLLAMA_KEEP_ALIVE="10m"
    )


@pytest.fixture
def log(daemon: RealDaemon) -> DaemonLog:
    return DaemonLog(daemon.log_path)


async def generate(daemon: RealDaemon, model: str = "tiny", **body: Any) -> tuple[int, Any]:
    options = {"num_predict": 4}
    return await ask(daemon.port, "/api/generate", within=SERVED, model=model, prompt="w1", options=options, **body)


async def is_served(daemon: RealDaemon, model: str = "tiny") -> None:
    status, answer = await generate(daemon, model)
    assert (status, answer.get("eval_count")) == (200, 4), answer


async def listed(daemon: RealDaemon) -> set[str]:
    return {model["name"] for model in (await get(daemon.port, "/api/ps"))["models"]}


def runner_of(daemon: RealDaemon, log: DaemonLog, model: str = "tiny") -> psutil.Process:
    """The process of the latest generation of `model`."""
    ready = log.matching(rf"{model}:latest is ready as generation \d+, pid \d+")[-1]
    pid = int(ready.text.partition("pid ")[2].partition(",")[0])
    return next(child for child in daemon.children() if child.pid == pid)


async def test_an_idle_runner(daemon: RealDaemon, log: DaemonLog, record_property: RecordProperty) -> None:
    await is_served(daemon)
    await is_served(daemon, "other")
    killed = trio.current_time()
    runner_of(daemon, log).kill()
    while "tiny:latest" in await listed(daemon):
        assert trio.current_time() - killed < BUSY * FORGOTTEN
    record_property("forgotten", trio.current_time() - killed)
    assert await listed(daemon) == {"other:latest"}
    await is_served(daemon)
    assert len(log.matching(LOADING)) == 2
    await is_served(daemon, "other")
    assert len(log.matching("loading other:latest")) == 1


async def test_a_runner_with_streams(daemon: RealDaemon, log: DaemonLog) -> None:
    """One error object, then the end; in both dialects. The other model's stream goes on to its own end."""
    async with ApiClient(daemon.port) as native, ApiClient(daemon.port) as openai, ApiClient(daemon.port) as unaffected:
        await endless_chat(native, "tiny")
        await openai.post("/v1/chat/completions", model="tiny", messages=MESSAGES, max_tokens=20_000, stream=True)
        assert await openai.status() == 200
        assert (await openai.line() or b"").startswith(b"data: ")
        await unaffected.post("/api/chat", model="other", messages=MESSAGES, options={"num_predict": 1000})
        assert await unaffected.status() == 200
        assert await unaffected.record()
        runner_of(daemon, log).kill()

        with trio.fail_after(SERVED):
            *tokens, error = await native.records()
            assert all("error" not in token and not token["done"] for token in tokens)
            assert set(error) == {"error"}
            assert error["error"].startswith(MID_STREAM)
            assert KILLED in error["error"]

            events = []
            while (line := await openai.line()) is not None:
                assert not line or line.startswith(b"data: ")
                if line:
                    events.append(json.loads(line.removeprefix(b"data: ")))  # no [DONE]
            *chunks, error = events
            assert all("error" not in chunk for chunk in chunks)
            assert error["error"]["message"].startswith(MID_STREAM)
            assert error["error"]["type"] == "api_error"

            # The daemon is still there for it: both errors came long before its end.
            *tokens, last = await unaffected.records()
            assert (last["done"], last["eval_count"]) == (True, 1000)
    await is_served(daemon)
    assert len(log.matching(LOADING)) == 2
    assert await listed(daemon) == {"tiny:latest", "other:latest"}


async def test_a_runner_with_an_answer_that_is_not_streamed(daemon: RealDaemon, log: DaemonLog) -> None:
    async with ApiClient(daemon.port) as client:
        await client.post("/api/chat", model="tiny", messages=MESSAGES, options={"num_predict": 20_000}, stream=False)
        await log.wait_for("init sampler", within=SERVED)
        runner_of(daemon, log).kill()
        with trio.fail_after(SERVED):
            assert await client.status() == 500
            answer = await client.whole()
        assert set(answer) == {"error"}
        assert KILLED in answer["error"]
    await is_served(daemon)


async def test_a_runner_that_loads(daemon: RealDaemon, log: DaemonLog) -> None:
    """All who wait for it hear of it, and none of them starts another load."""
    with HeldRunner(daemon) as load:
        answers: list[tuple[int, Any]] = []

        async def client() -> None:
            answers.append(await generate(daemon))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client)
            runner = await load.caught()
            await until(lambda: len(log.open_requests()) == 10, SERVED, lambda: log.text)
            runner.kill()
    assert [status for status, _ in answers] == [500] * 10
    for _, answer in answers:
        assert answer["error"].startswith(f"llama-server process has terminated: {KILLED}")
    assert len(log.matching(LOADING)) == 1
    assert not daemon.children()
    await is_served(daemon)


async def test_three_crashes_in_a_row(daemon: RealDaemon, log: DaemonLog, record_property: RecordProperty) -> None:
    """R78: then it is refused at once with the reason, by everybody who asks, and no other model is."""
    for _ in range(3):
        async with ApiClient(daemon.port) as client:
            await endless_chat(client, "tiny")
            runner_of(daemon, log).kill()
            assert "error" in (await client.records())[-1]
    asked = trio.current_time()
    for _ in range(20):
        status, answer = await generate(daemon)
        assert status == 500
        assert answer["error"].startswith('model "tiny:latest" failed several times in a row')
        assert KILLED in answer["error"]
    record_property("refused", (trio.current_time() - asked) / 20)
    assert len(log.matching(LOADING)) == 3
    assert not daemon.children()
    await is_served(daemon, "other")
    assert await listed(daemon) == {"other:latest"}


async def test_a_runner_that_hangs_when_a_client_leaves(
    daemon: RealDaemon, log: DaemonLog, record_property: RecordProperty
) -> None:
    """R08: it is given the time to let go, then it is replaced, and who else used it is told."""
    async with ApiClient(daemon.port) as other:
        await endless_chat(other, "tiny")
        async with ApiClient(daemon.port) as client:
            await endless_chat(client, "tiny")
            hung = runner_of(daemon, log)
            hung.suspend()
        left = trio.current_time()
        with trio.fail_after(SERVED):
            error = (await other.records())[-1]
        assert error == {"error": f"{MID_STREAM}the model did not let go of a cancelled request within 1 s"}
        assert trio.current_time() - left > 0.9, "it was given no time"
        await is_served(daemon)
        record_property("served again", trio.current_time() - left)
    assert not hung.is_running()
    assert len(log.matching(LOADING)) == 2
    assert len(daemon.children()) == 1
