"""A daemon that is killed has no last word: its runners notice by themselves, and the next daemon goes on (R69)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import trio

from tests.support.api_client import ask, get
from tests.support.crowd import crowd
from tests.support.real_daemon import RealDaemon
from tests.support.until import until

RecordProperty = Callable[[str, object], None]

BUSY = 3
GONE = 2.0
"""Seconds."""
SERVED = 30.0


@pytest.mark.parametrize("stopped", [False, True], ids=["at work", "stopped"])
async def test_no_runner_survives_it(
    stopped: bool, store: Path, tmp_path_factory: pytest.TempPathFactory, record_property: RecordProperty
) -> None:
    """And what it leaves on the disk goes with the next daemon."""
    run_time = tmp_path_factory.mktemp("run")
    variables = {"XDG_RUNTIME_DIR": str(run_time), "OLLAMA_NUM_PARALLEL": "2", "OLLAMA_MAX_LOADED_MODELS": "2"}
    with RealDaemon(store, **variables) as daemon:
        async with crowd(daemon) as clients:
            (runner,) = (child for child in daemon.children() if child != clients.load.process)
            loading = clients.load.process
            assert loading is not None
            if stopped:
                runner.suspend()
            else:
                clients.load.let_go()
            killed = trio.current_time()
            daemon.signal(signal.SIGKILL)
            # One that was stopped in its first moments knows nothing of its daemon yet; the next one ends it.
            await gone([runner] if stopped else [runner, loading])
            record_property("no runner", trio.current_time() - killed)
            with trio.fail_after(BUSY * GONE):
                await clients.idle.ended()
            assert daemon.wait(BUSY * GONE) == -signal.SIGKILL
            assert list(run_time.iterdir()), "then the next daemon has nothing to sweep, and this shows nothing"

            with RealDaemon(store, **{**variables, "OLLAMA_HOST": f"127.0.0.1:{daemon.port}"}) as following:
                await gone([runner, loading])
                assert len(list(run_time.iterdir())) == 1
                status, answer = await ask(
                    following.port,
                    "/api/generate",
                    within=SERVED,
                    model="tiny",
                    prompt="w1",
                    options={"num_predict": 4},
                )
                assert (status, answer.get("eval_count")) == (200, 4), answer
                assert [model["name"] for model in (await get(following.port, "/api/ps"))["models"]] == ["tiny:latest"]
    assert not list(run_time.iterdir())


async def gone(runners: list[psutil.Process]) -> None:
    await until(lambda: not any(map(lives, runners)), BUSY * GONE, lambda: str(runners))


def lives(process: psutil.Process) -> bool:
    """Whether it does anything still; an orphan may wait a while for its new parent to reap it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
