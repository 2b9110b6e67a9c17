"""What people's programs use, on their own event loops: the official clients and the two frameworks over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.support.api_client import ask
from tests.support.client_programs import PROGRAMS, Program, Running
from tests.support.daemon_log import DaemonLog
from tests.support.real_daemon import RealDaemon
from tests.support.scripted_models import add_scripted_models
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_projector import write_tiny_projector
from tests.support.until import until

from .conftest import ONE_THREAD, StartDaemon

pytestmark = [pytest.mark.real, pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)]

SOON = 10.0
"""Seconds for what has to be logged."""
BEGUN = r"task\s+\d+ \| processing task"
"""How the runner says that it has taken something on."""
LET_GO = 4.0
"""Seconds. A decode step takes less than a millisecond, an endless answer eight seconds or more."""


@pytest.fixture
def daemon(store: Path, tmp_path: Path, tiny_models: dict[str, bytes], start_daemon: StartDaemon) -> RealDaemon:
    add_scripted_models(store)
    made = OllamaStore(store)
    eyes = made.layer("projector", write_tiny_projector(tmp_path / "eyes.gguf").read_bytes())
    made.add("seer:latest", tiny_models["tiny"], layers=[eyes], params=ONE_THREAD)
    return start_daemon()


@pytest.fixture
def command(program: Program, pytestconfig: pytest.Config) -> list[str]:
    assert pytestconfig.cache is not None
    return program.command(pytestconfig.cache.mkdir)


async def test_all_that_it_does(command: list[str], daemon: RealDaemon) -> None:
    with trio.fail_after(100):
        async with Running(command, daemon.url, "do") as running:
            await running.words()


async def test_whoever_leaves_in_the_middle_leaves_nothing(
    program: Program, command: list[str], daemon: RealDaemon, record_property: Callable[[str, object], None]
) -> None:
    """The client lives on, with its connections; only its request is over, and the runner's work for it."""
    await ask(daemon.port, "/api/generate", within=60, model="endless")
    log, ways, runners = DaemonLog(daemon.log_path), set(), set()
    with trio.fail_after(100):
        async with Running(command, daemon.url, "leave") as running:
            while (line := await running.line()) is not None:
                if not line.startswith("left by "):
                    continue
                ways.add(line)
                left = await log.wait_for(r"^POST \S+ 499", within=SOON)
                begun = len(log.matching(BEGUN))
                idle = await log.wait_for(r"slot\s+release", within=SOON, count=begun)
                took = (idle.at - left.at).total_seconds()
                record_property(line, took)
                assert took < LET_GO, line
                await until(lambda: not log.open_requests(), SOON, lambda: log.text[-5_000:])
                runners |= {child.pid for child in daemon.children()}
                log.mark()
                await running.go_on()
    assert (len(ways), len(runners)) == (program.ways, 1)
    few = {"num_predict": 3}
    status, answer = await ask(daemon.port, "/api/generate", within=60, model="endless", prompt="w1", options=few)
    assert (status, answer["eval_count"]) == (200, 3)
