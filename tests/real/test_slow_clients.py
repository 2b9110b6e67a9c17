"""A client that does not read: it holds its runner for the stall limit at most, and nobody else up (R70, R74)."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.api_client import ApiClient, ask
from tests.support.daemon_log import DaemonLog
from tests.support.real_daemon import RealDaemon
from tests.support.until import until

from .conftest import StartDaemon

RecordProperty = Callable[[str, object], None]

STALL = 2.0
SLACK = 5.0
"""Seconds that a busy machine may add to any of the limits here."""
REACHED = 30.0


@asynccontextmanager
async def deaf_client(daemon: RealDaemon) -> AsyncIterator[ApiClient]:
    """A client with a long answer under way, of which it has taken nothing, and the daemon can send no more."""
    log = DaemonLog(daemon.log_path)
    async with ApiClient(daemon.port, receive_buffer=4096) as client:
        # Much is told of each token, so that the kernel's buffers are full soon.
        options = {"num_predict": 20_000}
        messages = [{"role": "user", "content": "w1"}]
        await client.post("/api/chat", model="tiny", messages=messages, options=options, logprobs=True, top_logprobs=20)
        before = [0]

        def stuck() -> bool:
            before.append(unacknowledged(daemon.port))
            return before[-1] > 0 and len(set(before[-20:])) == 1  # for a fifth of a second

        await until(stuck, REACHED, lambda: f"stuck, but {before}\n{log.text}")
        assert log.open_requests()
        yield client


def unacknowledged(port: int) -> int:
    """Bytes that wait in the kernel to be taken by clients of this port."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return sum(int(line.split()[4].split(":")[0], 16) for line in lines if line.split()[1].endswith(f":{port:04X}"))


async def listen(daemon: RealDaemon, tokens: int) -> float:
    """Another client reads an answer to its end; returns the longest wait for a token, in seconds."""
    async with ApiClient(daemon.port) as client:
        messages = [{"role": "user", "content": "w2"}]
        await client.post("/api/chat", model="tiny", messages=messages, options={"num_predict": tokens})
        longest, last = 0.0, trio.current_time()
        while (record := await client.record()) is not None:
            longest, last = max(longest, trio.current_time() - last), trio.current_time()
            done = record
        assert done["eval_count"] == tokens
        return longest


async def test_it_is_dropped_after_the_stall_limit(start_daemon: StartDaemon, record_property: RecordProperty) -> None:
    """With its lease, and its slot: there is only one."""
    daemon = start_daemon(TRIO_OLLAMA_STALL_TIMEOUT=f"{STALL}s", OLLAMA_NUM_PARALLEL="1")
    log = DaemonLog(daemon.log_path)
    started = trio.current_time()
    async with deaf_client(daemon) as client:
        stuck = trio.current_time()
        await until(lambda: not log.open_requests(), STALL + SLACK, lambda: log.text)
        record_property("lease gone", trio.current_time() - stuck)
        assert trio.current_time() - started >= STALL
        await log.wait_for("task .* stop processing", within=SLACK)
        with trio.fail_after(SLACK):
            await client.ended()
        status, answer = await ask(
            daemon.port, "/api/generate", within=SLACK, model="tiny", prompt="w1", options={"num_predict": 4}
        )
        assert status == 200, answer


async def test_it_delays_no_other_answer(start_daemon: StartDaemon, record_property: RecordProperty) -> None:
    daemon = start_daemon(TRIO_OLLAMA_STALL_TIMEOUT="1m", OLLAMA_NUM_PARALLEL="2")
    log = DaemonLog(daemon.log_path)
    async with deaf_client(daemon):
        with trio.fail_after(REACHED):
            longest = await listen(daemon, 300)
        record_property("longest gap", longest)
        assert longest < SLACK
        assert len(log.open_requests()) == 1, "it was no longer there"


async def test_it_delays_no_shutdown(start_daemon: StartDaemon, record_property: RecordProperty) -> None:
    drain = 1.0
    daemon = start_daemon(TRIO_OLLAMA_STALL_TIMEOUT="1m", TRIO_OLLAMA_DRAIN_TIMEOUT=f"{drain}s")
    async with deaf_client(daemon):
        runners = daemon.children()
        started = trio.current_time()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait(drain + 2.0 + SLACK) == 0
        record_property("stopped", trio.current_time() - started)
        assert not any(runner.is_running() for runner in runners)
