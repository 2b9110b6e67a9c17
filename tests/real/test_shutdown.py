"""The daemon ends when it is told to, in bounded time, whatever clients and runners do (I25, R67, R70, R71)."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import trio

from tests.support.api_client import ApiClient
from tests.support.crowd import crowd, endless_chat, port_is_free
from tests.support.daemon_log import DaemonLog
from tests.support.real_daemon import RealDaemon

from .conftest import StartDaemon

RecordProperty = Callable[[str, object], None]

BUSY = 3
"""Times as long as it has to be may it take on a machine that does other things."""
AT_ONCE = 2.0
"""Seconds beyond the limits that the user has set."""
ANSWERED = 60.0

ROOM = {"OLLAMA_NUM_PARALLEL": "2", "OLLAMA_MAX_LOADED_MODELS": "2"}
SHUTTING_DOWN = {"error": "server is shutting down"}
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)


async def exited(daemon: RealDaemon, runners: list[psutil.Process], limit: float) -> float:
    """Wait until the daemon has ended as it should, without a trace; returns the seconds it took."""
    begun = trio.current_time()
    status = await trio.to_thread.run_sync(daemon.wait, BUSY * limit)
    took = trio.current_time() - begun
    assert status == 0, daemon.log
    assert not [runner for runner in runners if runner.is_running()]
    assert port_is_free(daemon.port)
    return took


@SIGNALS
async def test_every_kind_of_client(
    number: signal.Signals, start_daemon: StartDaemon, record_property: RecordProperty
) -> None:
    drain = 1.0
    daemon = start_daemon(TRIO_OLLAMA_DRAIN_TIMEOUT=f"{drain}s", **ROOM)
    async with crowd(daemon) as clients, trio.open_nursery() as nursery:
        runners = daemon.children()
        assert len(runners) == 2
        clients.load.let_go()
        daemon.signal(number)

        async def is_refused(client: ApiClient) -> None:
            with trio.fail_after(BUSY * drain):
                assert (await client.status(), await client.whole()) == (503, SHUTTING_DOWN)

        async def is_cut_short() -> None:
            records = await clients.streaming.records()
            assert records.pop() == SHUTTING_DOWN
            assert all(record["message"]["content"] for record in records)

        async def is_refused_or_served(client: ApiClient) -> None:
            if await client.status() == 200:
                *_, last = await client.records()
                assert last == SHUTTING_DOWN or last["done"]
            else:
                assert await client.whole() == SHUTTING_DOWN

        for_a_slot, for_a_load, for_room = clients.waiting
        nursery.start_soon(is_refused, for_a_slot)
        # On a busy machine its load is stopped at its very end, and may be over before the signal is heard.
        nursery.start_soon(is_refused_or_served, for_a_load)
        nursery.start_soon(is_refused, for_room)
        nursery.start_soon(is_cut_short)
        with trio.fail_after(BUSY * drain):
            await clients.idle.ended()
        record_property("exited", await exited(daemon, runners, drain + AT_ONCE))


async def test_runners_that_do_not_obey(start_daemon: StartDaemon, record_property: RecordProperty) -> None:
    """Stopped ones, which take no SIGTERM: one with requests, one in its load."""
    drain, grace, kill_wait = 0.5, 0.5, 1.0
    limits = {"DRAIN_TIMEOUT": drain, "STOP_GRACE": grace, "KILL_WAIT": kill_wait}
    daemon = start_daemon(**{f"TRIO_OLLAMA_{name}": f"{limit}s" for name, limit in limits.items()}, **ROOM)
    async with crowd(daemon):
        runners = daemon.children()
        for runner in runners:
            runner.suspend()
        daemon.signal(signal.SIGTERM)
        record_property("exited", await exited(daemon, runners, drain + grace + kill_wait + AT_ONCE))


async def test_who_can_finish_does(start_daemon: StartDaemon, record_property: RecordProperty) -> None:
    tokens = 1000
    daemon = start_daemon(TRIO_OLLAMA_DRAIN_TIMEOUT="1m", **ROOM)
    log = DaemonLog(daemon.log_path)
    ended: list[float] = []

    async def finishes(client: ApiClient, stream: bool) -> None:
        records = await client.records() if stream else [await client.whole()]
        assert (records[-1]["done"], records[-1]["done_reason"], records[-1]["eval_count"]) == (True, "length", tokens)
        assert not any("error" in record for record in records)
        ended.append(trio.current_time())

    async with ApiClient(daemon.port) as streaming, ApiClient(daemon.port) as whole, ApiClient(daemon.port) as late:
        body: dict[str, Any] = {"model": "tiny", "prompt": "w1", "options": {"num_predict": tokens}}
        await streaming.post("/api/generate", **body)
        assert await streaming.status() == 200
        await whole.post("/api/generate", **body, stream=False)
        await log.wait_for("gets tiny", within=ANSWERED, count=2)
        await late.send("GET", "/api/version")
        assert (await late.status(), bool(await late.whole())) == (200, True)
        runners = daemon.children()
        daemon.signal(signal.SIGTERM)
        await late.ended()
        with pytest.raises(OSError, match="refused"):
            async with ApiClient(daemon.port):
                pass
        with trio.fail_after(ANSWERED):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(finishes, streaming, True)
                assert await whole.status() == 200
                nursery.start_soon(finishes, whole, False)
        await exited(daemon, runners, AT_ONCE)
        record_property("exited after the last answer", trio.current_time() - max(ended))


@pytest.mark.parametrize(
    "numbers",
    list(itertools.product([signal.SIGTERM, signal.SIGINT], repeat=2)),
    ids=lambda numbers: " ".join(number.name for number in numbers),
)
async def test_a_second_signal_waits_for_nobody(
    numbers: tuple[signal.Signals, signal.Signals], start_daemon: StartDaemon, record_property: RecordProperty
) -> None:
    daemon = start_daemon(TRIO_OLLAMA_DRAIN_TIMEOUT="1m")
    log = DaemonLog(daemon.log_path)
    async with ApiClient(daemon.port) as client:
        await endless_chat(client, "tiny")
        runners = daemon.children()
        daemon.signal(numbers[0])
        await log.wait_for("shutting down: 1 connections have up to 60s", within=BUSY * AT_ONCE)
        daemon.signal(numbers[1])
        record_property("exited", await exited(daemon, runners, AT_ONCE))
