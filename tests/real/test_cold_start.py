"""Many clients ask for one cold model at once: one load, and an answer for each (R04, R44, ollama/ollama#4189)."""

from __future__ import annotations

import pytest
import trio

from tests.support.api_client import ApiClient
from tests.support.daemon_log import DaemonLog

from .conftest import StartDaemon

ANSWERED = 60.0
"""Seconds for all of them; one or two on an idle machine."""


@pytest.mark.parametrize("clients", [16, 100])
async def test_one_load_serves_all_who_came_for_it(clients: int, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    log = DaemonLog(daemon.log_path)
    texts = []

    async def chat(stream: bool) -> None:
        async with ApiClient(daemon.port) as client:
            messages = [{"role": "user", "content": "w1"}]
            options = {"num_predict": 4}
            await client.post("/api/chat", model="tiny", messages=messages, options=options, stream=stream)
            assert await client.status() == 200
            records = await client.records() if stream else [await client.whole()]
            assert records[-1]["done"] is True
            assert records[-1]["eval_count"] == 4
            texts.append("".join(record["message"]["content"] for record in records))

    with trio.fail_after(ANSWERED):
        async with trio.open_nursery() as nursery:
            for number in range(clients):
                nursery.start_soon(chat, number % 2 == 0)

    assert len(texts) == clients
    assert all(texts), "an empty answer with status 200"
    assert len(log.matching("loading tiny:latest as generation")) == 1
    assert len(log.matching("is ready as generation")) == 1
    assert len(daemon.children()) == 1
