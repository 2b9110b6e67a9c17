"""Every kind of client at once, for what has to end all of them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from tests.support.api_client import ApiClient
from tests.support.daemon_log import DaemonLog
from tests.support.held_runner import HeldRunner
from tests.support.real_daemon import RealDaemon

__all__ = ["Crowd", "crowd", "endless_chat", "port_is_free"]

ARRIVED = 30.0
"""Seconds for each client to come to its stage."""
ENDLESS = 20_000
"""Tokens: several seconds of work at the least."""


class Crowd:
    """Clients of a daemon with two slots and room for two models."""

    streaming: ApiClient
    """Reads a long answer."""
    deaf: ApiClient
    """Has asked for a long answer and reads nothing."""
    waiting: list[ApiClient]
    """One waits for a slot of the first model, one for a load in progress, one until there is room for its model."""
    idle: ApiClient
    """Has had its answer and keeps its connection."""
    load: HeldRunner
    """The load in progress, stopped."""


async def endless_chat(client: ApiClient, model: str, **body: Any) -> None:
    """Begin an answer that takes long, and read its begin."""
    messages = [{"role": "user", "content": "w1"}]
    await client.post("/api/chat", model=model, messages=messages, options={"num_predict": ENDLESS}, **body)
    with trio.fail_after(ARRIVED):
        assert await client.status() == 200
        assert (await client.record() or {})["message"]["content"]


@asynccontextmanager
async def crowd(daemon: RealDaemon) -> AsyncIterator[Crowd]:
    """All of them, each at its stage. `daemon` has two slots per model and room for two models."""
    found, log = Crowd(), DaemonLog(daemon.log_path)
    async with AsyncExitStack() as stack:

        async def client(**options: Any) -> ApiClient:
            return await stack.enter_async_context(ApiClient(daemon.port, **options))

        found.idle = await client()
        await found.idle.send("GET", "/api/version")
        assert await found.idle.status() == 200
        await found.idle.whole()

        found.streaming = await client()
        await endless_chat(found.streaming, "tiny")
        found.deaf = await client(receive_buffer=4096)
        messages = [{"role": "user", "content": "w2"}]
        options = {"num_predict": ENDLESS}
        # Much is told of each token, so that the kernel's buffers are full soon.
        await found.deaf.post(
            "/api/chat", model="tiny", messages=messages, options=options, top_logprobs=20, logprobs=True
        )
        await log.wait_for("gets tiny:latest", within=ARRIVED, count=2)

        found.waiting = [await client() for _ in range(3)]
        await found.waiting[0].post("/api/generate", model="tiny", prompt="w3")
        await log.wait_for("gets tiny:latest .* no slot yet", within=ARRIVED)
        found.load = stack.enter_context(HeldRunner(daemon))
        await found.waiting[1].post("/api/chat", model="other", messages=messages)
        await found.load.caught()
        await found.waiting[2].post("/api/embed", model="embedder", input="w4")
        await log.wait_for("waits for embedder:latest", within=ARRIVED)
        yield found


def port_is_free(port: int) -> bool:
    """Whether another server could take it at once."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", port))
            server.listen()
        except OSError:
            return False
    return True
