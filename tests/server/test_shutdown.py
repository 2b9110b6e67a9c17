"""Shutdown is bounded whatever the clients do (R70), and starts with the first signal."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.serving import SOON, Client, Visit, get, probe_app, serving
from trio_ollama.server.limits import Limits


async def test_with_an_idle_a_waiting_a_streaming_and_a_stalled_client() -> None:
    drain = 0.5
    waiting, streaming, stalled = Visit(), Visit(), Visit()
    app = probe_app([waiting, streaming, stalled])
    async with (
        serving(app, Limits(drain=drain)) as server,
        await server.connect() as idle,
        await server.connect() as waiter,
        await server.connect() as streamer,
        await server.connect(receive_buffer=4096) as staller,
    ):
        await idle.send(get("/quick"))
        await idle.response()
        for client, path, visit in (
            (waiter, "/wait", waiting),
            (streamer, "/stream", streaming),
            (staller, "/flood", stalled),
        ):
            await client.send(get(path))
            await visit.entered.wait()
        await wait_all_tasks_blocked(0.05)
        begun = trio.current_time()
        server.shutdown.set()
        assert await idle.rest(drain / 2) == b"", "an idle connection has nothing to wait for"
        with pytest.raises(OSError, match="refused"):
            await server.connect()
        assert not waiting.released.is_set()
        with trio.fail_after(drain + SOON):
            await server.stopped.wait()
        assert trio.current_time() - begun >= drain * 0.9, "requests were not given the time to finish"
        await waiting.gone()
        await streaming.gone()
        await stalled.gone("closed")
        for client in (waiter, streamer, staller):
            await client.ended()


async def test_lets_a_request_finish_and_ends_its_connection() -> None:
    visit = Visit()
    async with serving(probe_app([visit]), Limits(drain=30)) as server, await server.connect() as client:
        await client.send(get("/wait"))
        await visit.entered.wait()
        server.shutdown.set()
        await wait_all_tasks_blocked()
        visit.go.set()
        answer = await client.response()
        assert (answer.body, answer.headers["connection"]) == (b"waited", "close")
        assert await client.rest() == b""
        with trio.fail_after(SOON):
            await server.stopped.wait()


async def test_does_not_start_a_pipelined_request() -> None:
    first, second = Visit(), Visit()
    async with serving(probe_app([first, second]), Limits(drain=30)) as server, await server.connect() as client:
        await client.send(get("/wait") + get("/wait"))
        await first.entered.wait()
        server.shutdown.set()
        await wait_all_tasks_blocked()
        first.go.set()
        assert (await client.response()).body == b"waited"
        assert await client.rest() == b""
        assert not second.entered.is_set()


async def test_without_clients_is_immediate() -> None:
    async with serving(probe_app([Visit()]), Limits(drain=30)) as server:
        server.shutdown.set()
        with trio.fail_after(SOON):
            await server.stopped.wait()


class Daemon:
    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.buffer = b""

    async def line(self) -> str:
        assert self.process.stdout is not None
        while b"\n" not in self.buffer:
            data = await self.process.stdout.receive_some()
            assert data, f"the daemon ended after {self.buffer!r}"
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    async def port(self) -> int:
        assert await self.line() == "start-up work"
        line = await self.line()
        assert line.startswith("listening on ")
        return int(line.rsplit(" ", 1)[1])

    async def rest(self) -> tuple[list[str], int]:
        """Lines until it ends, and its exit status."""
        assert self.process.stdout is not None
        while data := await self.process.stdout.receive_some():
            self.buffer += data
        return self.buffer.decode().splitlines(), await self.process.wait()


@contextlib.asynccontextmanager
async def daemon(port: int, drain: float) -> AsyncIterator[Daemon]:
    command = [sys.executable, "-m", "tests.support.daemon", str(port), str(drain)]
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE, check=False))
        try:
            with trio.fail_after(20):
                yield Daemon(process)
        finally:
            if process.returncode is None:
                process.kill()


@contextlib.asynccontextmanager
async def asking(running: Daemon) -> AsyncIterator[Client]:
    """A client whose request the daemon is working on."""
    async with Client(await trio.open_tcp_stream("127.0.0.1", await running.port())) as client:
        await client.send(get("/wait"))
        assert await running.line() == "request"
        yield client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_first_signal_drains(number: signal.Signals) -> None:
    async with daemon(0, 0.3) as running, asking(running) as client:
        running.process.send_signal(number)
        assert await running.rest() == (["request ends", "served", "cleaned up"], 0)
        await client.ended()


@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)])
async def test_second_signal_leaves_at_once_with_cleanup(numbers: tuple[signal.Signals, signal.Signals]) -> None:
    async with daemon(0, 600) as running, asking(running) as client:
        running.process.send_signal(numbers[0])
        await refuses(client.stream.socket.getpeername())  # the first signal has arrived
        running.process.send_signal(numbers[1])
        assert await running.rest() == (["request ends", "cleaned up"], 0)
        await client.ended()


async def refuses(address: tuple[str, int]) -> None:
    """Nobody accepts connections there any more."""
    while True:
        try:
            stream = await trio.open_tcp_stream(*address)
        except OSError:
            return
        await trio.aclose_forcefully(stream)


async def test_a_taken_port_fails_before_any_start_up_work() -> None:
    async with serving(probe_app([Visit()])) as server, daemon(server.address[1], 1) as second:
        expected = f"Error: listen tcp 127.0.0.1:{server.address[1]}: address already in use"
        assert await second.rest() == ([expected], 1)
        await server.answers()
