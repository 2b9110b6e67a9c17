"""R81: requests to which a runner says nothing any more are ended, whatever it was asked; others are left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import trio
import trio.testing

from trio_ollama.runners.contract import RunnerDiedError
from trio_ollama.server.live import LiveRequest, LiveRequests
from trio_ollama.server.silence import watch_silence

LIMIT = 60.0


class Asked:
    """A lease, as far as its silence goes."""

    model = "tiny"

    def __init__(self) -> None:
        self.steps = 0
        self.ended: list[tuple[float, Exception]] = []

    def abandon(self, error: Exception) -> None:
        self.ended.append((trio.current_time(), error))


@asynccontextmanager
async def watched(*leases: Asked | None) -> AsyncIterator[None]:
    """Requests with these leases, under watch."""
    lives = []
    for number, lease in enumerate(leases):
        live = LiveRequest(str(number), "POST", "/api/chat", "", trio.CancelScope())
        live.lease = cast(Any, lease)
        lives.append(live)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_silence, cast(LiveRequests, lives), LIMIT)
        yield
        nursery.cancel_scope.cancel()


async def test_one_that_gets_nothing(autojump_clock: trio.testing.MockClock) -> None:
    silent, begun = Asked(), trio.current_time()
    async with watched(silent):
        silent.steps = 7
        await trio.sleep(2 * LIMIT)
        silent.steps = 8  # it has ended
    at, error = silent.ended[0]
    assert LIMIT <= at - begun <= 1.3 * LIMIT
    assert isinstance(error, RunnerDiedError)
    assert str(error) == "no answer from the model for 60 s"


async def test_those_that_get_something_or_ask_for_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """One gets a token now and then, one waits for its client, one for a runner."""
    slow, sending = Asked(), Asked()
    sending.steps = 4
    async with watched(slow, sending, None):
        for _ in range(20):
            slow.steps += 1
            assert slow.steps % 2
            await trio.sleep(LIMIT * 0.8)
            slow.steps += 1
    assert (slow.ended, sending.ended) == ([], [])


async def test_one_that_is_over_is_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    """Another that asks for as many things after it is not taken for it."""
    first, second = Asked(), Asked()
    lives: list[Any] = [LiveRequest("1", "POST", "/", "", trio.CancelScope())]
    lives[0].lease = first
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_silence, cast(LiveRequests, lives), LIMIT)
        first.steps = 1
        await trio.sleep(LIMIT * 0.9)
        lives[0] = LiveRequest("2", "POST", "/", "", trio.CancelScope())
        lives[0].lease, second.steps = second, 1
        await trio.sleep(LIMIT * 0.9)
        nursery.cancel_scope.cancel()
    assert (first.ended, second.ended) == ([], [])
