"""A child ends with its daemon, however that ends (R69)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.llama_server_double import write_double
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.runners.llama_server import child
from trio_ollama.runners.llama_server.directory import PREFIX, sweep
from trio_ollama.runners.llama_server.embedded import parameters
from trio_ollama.runners.llama_server.endpoint import Endpoint

pytestmark = pytest.mark.real

DAEMON = """
import pathlib, sys, trio
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.runners.llama_server import runner_factory

async def main(kind, binary, root, model, wait):
    with runner_factory(kind, binary, root) as factory:
        runner = factory.spawn(LaunchSpec(model, 2048, gpu_layers=0, num_thread=1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.serve)
            if wait == "ready":
                await runner.ready(60)
            print(runner.pid, flush=True)

kind, binary, root, model, wait = sys.argv[1:]
trio.run(main, kind, pathlib.Path(binary) if binary else None, pathlib.Path(root), model, wait)
"""

SECONDS = 2.0


@pytest.fixture(params=["embedded", "external"])
def command(request: pytest.FixtureRequest, tmp_path: Path, tiny_model: Path) -> list[str]:
    binary = str(write_double(tmp_path)) if request.param == "external" else ""
    return [sys.executable, "-c", DAEMON, request.param, binary, str(tmp_path), str(tiny_model)]


@pytest.fixture(params=["ready", "at once"])
def daemon(request: pytest.FixtureRequest, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([*command, request.param], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_child_is_left(daemon: subprocess.Popen[str], number: signal.Signals, tmp_path: Path) -> None:
    assert daemon.stdout is not None
    child = int(daemon.stdout.readline())
    handle = os.pidfd_open(child)
    try:
        daemon.send_signal(number)
        assert select.select([handle], [], [], SECONDS)[0], "the child lives on"
    finally:
        os.close(handle)
    daemon.wait()
    sweep(tmp_path)
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_the_daemons_end_is_seen_on_stdin(tmp_path: Path, tiny_model: Path) -> None:
    """The second line: an embedded child without the signal, whose stdin ends."""
    code = (
        "import importlib.util, json, sys\n"
        "spec = importlib.util.spec_from_file_location('child', sys.argv[1])\n"
        "child = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(child)\n"
        "child.serve(json.loads(sys.argv[2]))\n"
    )
    values = json.dumps(parameters(LaunchSpec(str(tiny_model), 2048), Endpoint(str(tmp_path / "x.sock"))))
    command = [sys.executable, "-c", code, child.__file__, values]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            assert any("listening on" in line for line in process.stderr)
            assert process.poll() is None
            process.stdin.close()
            assert process.wait(20) == 0
        finally:
            process.kill()
