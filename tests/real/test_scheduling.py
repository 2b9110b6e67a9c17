"""Which runner serves whom, when one has to go, and who is turned away: with real runners and real time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.daemon_log import DaemonLog
from tests.support.held_runner import HeldRunner
from tests.support.real_daemon import RealDaemon
from tests.support.until import until

from .conftest import StartDaemon

RecordProperty = Callable[[str, object], None]

SOON = 10.0
"""Seconds for a load, an answer or a stop; tenths on an idle machine."""
ALL_SERVED = 60.0
LOADING, READY, GOES = "loading .* as generation", "is ready as generation", r"\(generation \d+\) goes"


async def generate(daemon: RealDaemon, model: str = "tiny", **body: Any) -> dict[str, Any]:
    """A short answer."""
    options = {"num_predict": 4, **body.pop("options", {})}
    answer: dict[str, Any]
    status, answer = await ask(
        daemon.port, "/api/generate", within=ALL_SERVED, model=model, prompt="w1", options=options, **body
    )
    assert status == 200, answer
    assert answer["eval_count"] == options["num_predict"]
    return answer


async def listed(daemon: RealDaemon) -> list[dict[str, Any]]:
    """What `ps` says."""
    models: list[dict[str, Any]] = (await get(daemon.port, "/api/ps"))["models"]
    return models


async def gone(daemon: RealDaemon, within: float = SOON) -> None:
    await until(lambda: not daemon.children(), within, lambda: f"no runner, but {daemon.children()}\n{daemon.log}")
    assert await listed(daemon) == []


def remaining(model: dict[str, Any]) -> timedelta:
    return datetime.fromisoformat(model["expires_at"]) - datetime.now(UTC)


# -- two models, room for one -----------------------------------------------------------------------------------


async def test_two_models_take_turns_under_traffic_to_both(
    start_daemon: StartDaemon, record_property: RecordProperty
) -> None:
    daemon = start_daemon(OLLAMA_MAX_LOADED_MODELS="1", OLLAMA_NUM_PARALLEL="2")
    log = DaemonLog(daemon.log_path)
    served: Counter[str] = Counter()

    async def client(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(10):
            model = chance.choice(["tiny", "other"])
            await generate(daemon, model)
            served[model] += 1

    with trio.fail_after(ALL_SERVED):
        async with trio.open_nursery() as nursery:
            for seed in range(8):
                nursery.start_soon(client, seed)

    assert served.total() == 80
    assert len(await listed(daemon)) == 1
    loads = log.matching(READY)
    assert all(entry.text.endswith("; 1 loaded") for entry in loads)
    # Nobody waits for ever, and nobody pays a load for each single answer.
    assert 2 <= len(loads) <= served.total() / 2
    record_property("loads", len(loads))


# -- options ----------------------------------------------------------------------------------------------------


async def test_another_context_is_one_reload(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(OLLAMA_NUM_PARALLEL="2")
    log = DaemonLog(daemon.log_path)

    async def all_at_once(context: int) -> None:
        with trio.fail_after(ALL_SERVED):
            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(lambda: generate(daemon, options={"num_ctx": context}))

    await generate(daemon, options={"num_ctx": 512})
    for loads, context in enumerate((512, 1024, 512), start=1):
        await all_at_once(context)
        assert len(log.matching(LOADING)) == len(log.matching(READY)) == loads
        assert [model["context_length"] for model in await listed(daemon)] == [context]


# -- keep-alive -------------------------------------------------------------------------------------------------


async def test_keep_alive_zero_ends_the_runner_with_the_request(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    await generate(daemon, keep_alive=0)
    await gone(daemon)


async def test_keep_alive_ends_when_it_is_over(start_daemon: StartDaemon, record_property: RecordProperty) -> None:
    daemon = start_daemon()
    log = DaemonLog(daemon.log_path)
    await generate(daemon, keep_alive="1s")
    await gone(daemon)
    idle = log.matching("is done with tiny")[-1]
    waited = (log.matching(GOES)[-1].at - idle.at) / timedelta(seconds=1)
    record_property("after a second", waited)
    assert waited >= 0.99  # the log has milliseconds


async def test_the_last_request_decides_on_keep_alive(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(OLLAMA_KEEP_ALIVE="10m")
    log = DaemonLog(daemon.log_path)

    async def left(**body: Any) -> timedelta:
        await generate(daemon, **body)
        (model,) = await listed(daemon)
        return remaining(model)

    minute = timedelta(minutes=1)
    assert 9 * minute < await left() <= 10 * minute
    assert await left(keep_alive=-1) > timedelta(days=36_500)
    assert await left() > timedelta(days=36_500), "without a wish it stays as it is"
    assert 4 * minute < await left(keep_alive="5m") <= 5 * minute
    assert timedelta(0) < await left(keep_alive=60) <= minute
    await generate(daemon, keep_alive="10ms")
    await gone(daemon)
    assert len(log.matching(LOADING)) == 1


async def test_a_new_request_starts_keep_alive_anew(start_daemon: StartDaemon) -> None:
    """No answer comes from a runner that is on its way out, and none pays a load for a timer that was overtaken."""
    daemon = start_daemon()
    log = DaemonLog(daemon.log_path)
    await generate(daemon, keep_alive="3s")
    for _ in range(3):
        await trio.sleep(0.5)
        await generate(daemon, keep_alive="3s")
    await gone(daemon)
    assert len(log.matching(LOADING)) == 1
    waited = log.matching(GOES)[-1].at - log.matching("is done with tiny")[-1].at
    assert waited >= timedelta(seconds=2.99)


# -- stop -------------------------------------------------------------------------------------------------------


async def test_a_stop_lets_the_running_answer_finish(start_daemon: StartDaemon) -> None:
    """And nobody new joins (R25): the next request is served by another runner."""
    daemon = start_daemon(OLLAMA_NUM_PARALLEL="2")
    log = DaemonLog(daemon.log_path)
    async with ApiClient(daemon.port) as client:
        options = {"num_predict": 2_000}
        await client.post("/api/chat", model="tiny", messages=[{"role": "user", "content": "w1"}], options=options)
        with trio.fail_after(SOON):
            assert await client.status() == 200
            assert await client.record()
        (old,) = daemon.children()
        status, answer = await ask(daemon.port, "/api/generate", within=SOON, model="tiny", keep_alive=0)
        assert (status, answer["done_reason"]) == (200, "unload")
        (model,) = await listed(daemon)
        assert remaining(model) <= timedelta(0), "a model that goes is not said to stay"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(generate, daemon)
            with trio.fail_after(ALL_SERVED):
                records = await client.records()
    assert records[-1]["eval_count"] == 2_000
    (new,) = daemon.children()
    assert new.pid != old.pid
    assert len(log.matching(LOADING)) == 2
    assert log.matching(r"generation 1\) goes: it was asked to stop; 1 requests finish first")


# -- the queue --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bound", "clients"), [(512, 600), (0, 5)])
async def test_a_burst_beyond_the_queue_is_refused_at_once(bound: int, clients: int, start_daemon: StartDaemon) -> None:
    """Whoever is beyond the bound while the load lasts hears it at once; all others are served."""
    daemon = start_daemon(OLLAMA_MAX_QUEUE=str(bound), OLLAMA_NUM_PARALLEL="4")
    log = DaemonLog(daemon.log_path)
    expected = min(clients, max(bound, 1))  # without any queue there is still the one that begins the load
    served: list[Any] = []
    refused: list[Any] = []

    async def client() -> None:
        status, answer = await ask(
            daemon.port, "/api/generate", model="tiny", prompt="w1", raw=True, options={"num_predict": 1}
        )
        (served if status == 200 else refused).append((status, answer))

    with trio.fail_after(2 * ALL_SERVED), HeldRunner(daemon) as load:
        async with trio.open_nursery() as nursery:
            for _ in range(clients):
                nursery.start_soon(client)
            await load.caught()
            await until(
                lambda: len(refused) >= clients - expected and len(log.open_requests()) == expected,
                ALL_SERVED,
                lambda: f"{len(log.open_requests())} wait, {len(refused)} refused\n{log.text[-5000:]}",
            )
            load.let_go()

    busy = (503, {"error": "server busy, please try again.  maximum pending requests exceeded"})
    assert refused == [busy] * (clients - expected)
    assert len(served) == expected
    assert all(answer["response"] for _, answer in served)
    assert len(log.matching(LOADING)) == 1
