"""A client that does not read holds up its own request, for a bounded time, and nobody else (R70, R74)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.serving import FLOOD, SOON, Visit, get, probe_app, serving
from trio_ollama.server.asgi import App
from trio_ollama.server.limits import Limits


async def test_is_dropped_after_the_stall_limit() -> None:
    visit = Visit()
    limits = Limits(stall=0.3, drain=0.1)
    async with serving(probe_app([visit]), limits) as server, await server.connect(receive_buffer=4096) as client:
        await client.send(get("/flood"))
        await visit.entered.wait()
        await server.answers()
        assert not visit.released.is_set()
        await visit.gone("closed")
        await client.ended()


async def test_stops_its_producer_after_little_more_than_the_kernel_holds() -> None:
    visit = Visit()
    async with serving(probe_app([visit])) as server, await server.connect() as client:
        await client.send(get("/flood"))
        await visit.entered.wait()
        await wait_all_tasks_blocked(0.1)
        assert visit.chunks * len(FLOOD) <= 512 * 1024


async def test_that_reads_a_little_now_and_then_is_not_dropped() -> None:
    visit = Visit()
    limits = Limits(stall=0.4, drain=0.1)
    async with serving(probe_app([visit]), limits) as server, await server.connect() as client:
        await client.send(get("/flood"))
        for _ in range(10):
            await trio.sleep(0.1)
            for _ in range(4):
                assert await client.stream.receive_some(65_536)
        assert not visit.released.is_set()
        await client.close()
        await visit.gone("closed")


async def test_delays_no_other_stream() -> None:
    stalled, other = Visit(), Visit()
    async with serving(probe_app([stalled, other])) as server, await server.connect(receive_buffer=4096) as client:
        await client.send(get("/flood"))
        await stalled.entered.wait()
        await wait_all_tasks_blocked(0.05)
        async with await server.connect() as reader:
            await reader.send(get("/flood"))
            await other.entered.wait()
            with trio.fail_after(SOON):
                await reader.exactly(500_000)


async def test_delays_no_shutdown() -> None:
    visit = Visit()
    limits = Limits(stall=60, drain=0.2)
    async with serving(probe_app([visit]), limits) as server, await server.connect(receive_buffer=4096) as client:
        await client.send(get("/flood"))
        await visit.entered.wait()
        await wait_all_tasks_blocked(0.05)
        server.shutdown.set()
        with trio.fail_after(0.2 + SOON):
            await server.stopped.wait()
        await visit.gone("closed")
        await client.ended()


async def test_in_a_plain_response_is_dropped_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trio_ollama.access")
    app = App("large")

    @app.get("/large")
    async def large() -> bytes:
        return bytes(8_000_000)

    async with (
        serving(app, Limits(stall=0.2, drain=0.1)) as server,
        await server.connect(receive_buffer=4096) as client,
    ):
        await client.send(get("/large"))
        await trio.sleep(0.5)
        await client.ended()
    assert [record.getMessage().split()[2] for record in caplog.records] == ["499"]


async def test_of_one_large_response_has_the_limit_for_each_bit_of_progress() -> None:
    app = App("large")

    @app.get("/large")
    async def large() -> bytes:
        return bytes(8_000_000)

    async with serving(app, Limits(stall=0.3, drain=0.1)) as server, await server.connect() as client:
        await client.send(get("/large", "Connection: close"))
        read = 0
        for _ in range(8):
            await trio.sleep(0.1)
            read += len(await client.stream.receive_some(500_000))
        assert read + len(await client.rest(5)) > 8_000_000
