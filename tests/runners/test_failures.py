"""Loads that fail, and why, as a client would read it."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.runners.contract_suite import PATIENCE, SpecMaker, completion, read_all, running, started
from tests.support.llama_server_double import write_double
from tests.support.tiny_gguf import write_tiny_gguf
from trio_ollama.runners.contract import (
    LoadFailedError,
    LoadStalledError,
    RunnerDiedError,
    RunnerFactory,
    SpawnError,
)
from trio_ollama.runners.llama_server import LlamaServerFactory, runner_factory
from trio_ollama.runners.llama_server.directory import ChildDirectory
from trio_ollama.runners.llama_server.endpoint import Endpoint, loopback

pytestmark = pytest.mark.real


def _cut(model: Path, size: int) -> bytes:
    return model.read_bytes()[:size]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (lambda model: b"", "failed to read magic"),
        (lambda model: b"hello, this is no model", "invalid magic characters: 'hell', expected 'GGUF'"),
        (lambda model: _cut(model, 1000), "failed to read key-value pairs"),
        (lambda model: _cut(model, 300_000), "model is corrupted or incomplete"),
    ],
    ids=["missing", "empty", "not-gguf", "cut-in-the-header", "cut-in-the-data"],
)
async def test_bad_files(
    factory: RunnerFactory,
    spec: SpecMaker,
    tiny_model: Path,
    tmp_path: Path,
    content: Callable[[Path], bytes] | None,
    reason: str,
) -> None:
    path = tmp_path / "bad.gguf"
    if content is not None:
        path.write_bytes(content(tiny_model))
    async with started(factory, spec(model=str(path))) as runner:
        with pytest.raises(LoadFailedError) as failed:
            await runner.ready(PATIENCE)
    text = str(failed.value)
    assert text.startswith("llama-server process has terminated: exit status 1: ")
    assert text.count(reason) == 1
    assert not failed.value.out_of_memory


async def test_memory_that_cannot_be_had(tmp_path: Path, spec: SpecMaker) -> None:
    binary = write_double(tmp_path, before="ulimit -v 2000000")  # KiB; the cache alone would take 4 GiB
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec(num_ctx=16 * 1024 * 1024)) as runner:
            with pytest.raises(LoadFailedError, match="failed to allocate") as failed:
                await runner.ready(PATIENCE)
    assert failed.value.out_of_memory


async def test_an_unknown_cache_type(embedded: LlamaServerFactory, spec: SpecMaker) -> None:
    async with started(embedded, spec(cache_type="q99")) as runner:
        with pytest.raises(LoadFailedError, match=r"error: this build of xllamacpp has no GGML_TYPE_Q99"):
            await runner.ready(PATIENCE)


async def test_a_death_by_a_signal_is_named(tmp_path: Path, spec: SpecMaker) -> None:
    """R78: a binary that does not suit the machine says nothing itself."""
    binary = write_double(tmp_path, before="kill -ILL $$")
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec()) as runner:
            with pytest.raises(LoadFailedError, match=r"terminated: signal SIGILL \(.*instructions that the CPU"):
                await runner.ready(PATIENCE)


async def test_a_binary_that_ends_at_once(tmp_path: Path, spec: SpecMaker) -> None:
    binary = write_double(tmp_path, before="exit 0")
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec()) as runner:
            with pytest.raises(LoadFailedError, match=r"terminated: exit status 0$"):
                await runner.ready(PATIENCE)


async def test_a_refused_flag_is_told(tmp_path: Path, spec: SpecMaker) -> None:
    binary = write_double(tmp_path, before='set -- "$@" --no-such-flag')
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec()) as runner:
            with pytest.raises(LoadFailedError, match=r"exit status 1: error: invalid argument: --no-such-flag"):
                await runner.ready(PATIENCE)


async def test_an_interpreter_that_is_gone(
    embedded: LlamaServerFactory, spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with pytest.raises(SpawnError, match="error starting llama-server: "):
        embedded.spawn(spec())


async def test_a_load_without_a_sign_of_life(factory: RunnerFactory, spec: SpecMaker) -> None:
    """R83: a stopped child; the stall limit is the only thing that ends the wait."""
    runner = factory.spawn(spec())
    os.kill(runner.pid, signal.SIGSTOP)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.serve)
            with pytest.raises(LoadStalledError, match=r"^timed out waiting for llama-server to start"):
                await runner.ready(0.4)
            with trio.move_on_after(0.3) as waited:
                await runner.ready(math.inf)
            assert waited.cancelled_caught
            runner.terminate()
            await trio.sleep(0.1)
            assert runner.exited is None  # a stopped process does not act on SIGTERM (R71)
            runner.kill()
    assert runner.exited is not None
    assert runner.exited.code == -signal.SIGKILL


async def test_a_slow_load_with_signs_of_life_is_waited_for(tmp_path: Path, spec: SpecMaker) -> None:
    """R83: the limit is for silence, not for the whole load."""
    binary = write_double(tmp_path, before="for i in 1 2 3 4 5 6 7 8 9 10; do echo working >&2; sleep 0.2; done")
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec()) as runner:
            await runner.ready(1.5)


async def test_over_loopback_with_a_key(
    factory: RunnerFactory, spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no Unix socket can be had."""
    endpoints: list[Endpoint] = []

    def endpoint(_: ChildDirectory) -> Endpoint:
        endpoints.append(loopback())
        return endpoints[-1]

    monkeypatch.setattr(ChildDirectory, "endpoint", endpoint)
    async with running(factory, spec()) as (runner, _):
        async with runner.stream("/completion", completion(tokens=3)) as call:
            assert (await read_all(call))[-1]["stop"]
        stranger = await Endpoint("127.0.0.1", endpoints[0].port).connect()
        async with stranger:
            await stranger.send_all(b"GET /props HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await stranger.receive_some()).startswith(b"HTTP/1.1 401 ")


async def test_a_port_that_is_taken(factory: RunnerFactory, spec: SpecMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """R82: another server answers there, but it is not our child."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ChildDirectory, "endpoint", lambda _: Endpoint("127.0.0.1", port, "key"))
        async with started(factory, spec()) as runner:
            with pytest.raises(LoadFailedError, match="couldn't bind HTTP server socket"):
                await runner.ready(PATIENCE)


async def test_another_server_in_the_place_of_our_child(spec: SpecMaker, tmp_path: Path) -> None:
    """R82: readiness counts only from a server with our model."""
    other = write_tiny_gguf(tmp_path / "other.gguf")
    binary = write_double(tmp_path, before=f'shift 2; set -- --model "{other}" "$@"')
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec()) as runner:
            with pytest.raises(LoadFailedError, match="serves another model"):
                await runner.ready(PATIENCE)


async def test_a_child_that_floods_its_output(tmp_path: Path, spec: SpecMaker) -> None:
    """R78: it is drained all the time, in lines of any length."""
    flood = "(while :; do head -c 200000 /dev/zero; echo error: flood; done) >&2 &"
    with runner_factory("external", write_double(tmp_path, before=flood), tmp_path) as factory:
        async with (
            running(factory, spec()) as (runner, _),
            runner.stream("/completion", completion(tokens=20)) as call,
        ):
            assert (await read_all(call))[-1]["stop"]


async def test_what_a_wrapper_leaves_behind_dies_with_it(tmp_path: Path, spec: SpecMaker) -> None:
    """R71: the group goes with the leader."""
    note = tmp_path / "grandchild"
    binary = write_double(tmp_path, before=f'sleep 1000 & echo $! > "{note}"')
    with runner_factory("external", binary, tmp_path) as factory, trio.fail_after(PATIENCE):
        runner = factory.spawn(spec())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.serve)
            await runner.ready(PATIENCE)
            grandchild = os.pidfd_open(int(note.read_text()))
            os.kill(runner.pid, signal.SIGKILL)
        try:
            await trio.lowlevel.wait_readable(grandchild)
        finally:
            os.close(grandchild)


SCRIPTED = """
import http.server, json, socketserver, sys
sys.stderr.write(SAYS + "\\n")
sys.stderr.flush()
answers = ANSWERS
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        if self.path == "/props":
            status, body = 200, {"default_generation_settings": {"n_ctx": 7}}
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
    def address_string(self):
        return "unix"
    def log_message(self, *_):
        pass
def argument(name):
    return sys.argv[sys.argv.index(name) + 1]
host = argument("--host")
if host.endswith(".sock"):
    server = socketserver.UnixStreamServer(host, Handler)
else:  # the folder's path is too long for a socket
    server = http.server.HTTPServer((host, int(argument("--port"))), Handler)
server.serve_forever()
"""


def scripted(folder: Path, says: str, *answers: tuple[int, Any]) -> Path:
    """A binary that writes a line and answers /health with each of `answers`, the last one for ever."""
    program = folder / "program.py"
    program.write_text(SCRIPTED.replace("SAYS", repr(says)).replace("ANSWERS", repr(list(answers))))
    binary = folder / "scripted"
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}" "$@"\n')
    binary.chmod(0o755)
    return binary


OK = (200, {"status": "ok"})
LOADING = (503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
FAILING = (500, {"error": {"message": "unhappy", "code": 500}})


@pytest.mark.parametrize(
    ("says", "answers"),
    [
        ("cudaMalloc failed: out of memory", (LOADING, LOADING, OK)),
        ("failed to allocate compute buffers, retrying without pipeline parallelism", (FAILING, FAILING, OK)),
        ("error: harmless", (FAILING, (503, {"status": "no slot available"}), (503, {"status": "loading model"}), OK)),
    ],
)
async def test_complaints_of_a_load_that_succeeds_are_forgotten(
    tmp_path: Path, spec: SpecMaker, says: str, answers: tuple[tuple[int, Any], ...]
) -> None:
    """R52."""
    with runner_factory("external", scripted(tmp_path, says, *answers), tmp_path) as factory:
        async with running(factory, spec()) as (runner, report):
            assert report.context == 7
    assert runner.exited is not None
    assert runner.exited.lines == ()


async def test_memory_that_runs_out_before_the_end_of_the_process(tmp_path: Path, spec: SpecMaker) -> None:
    """R52: the child lives and says that it failed; its end is not waited for."""
    binary = scripted(tmp_path, "cudaMalloc failed: out of memory", FAILING)
    with runner_factory("external", binary, tmp_path) as factory:
        async with started(factory, spec()) as runner:
            with pytest.raises(LoadFailedError, match=r"reported out-of-memory during startup: .*cudaMalloc") as failed:
                await runner.ready(PATIENCE)
    assert failed.value.out_of_memory


async def test_a_call_to_a_child_that_breaks_off(tmp_path: Path, spec: SpecMaker) -> None:
    """The child dies by an outsider's signal while a call is open; the reason is told (R80)."""
    with runner_factory("embedded", root=tmp_path) as factory:
        async with (
            running(factory, spec()) as (runner, _),
            runner.stream("/completion", completion(tokens=30000)) as call,
        ):
            await call.receive()
            os.kill(runner.pid, signal.SIGSEGV)
            with pytest.raises(RunnerDiedError, match=r"unexpected EOF \(signal SIGSEGV\)$"):
                await read_all(call)
