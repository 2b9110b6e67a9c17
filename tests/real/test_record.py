"""`serve --record FILE` with real runners: what becomes of a request is what its line says."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from simulations.plan.calibrate import calibrate
from simulations.plan.forecast import Plan, forecast
from simulations.plan.machine import from_header
from simulations.plan.reading import read_trace
from simulations.plan.table import planned, recorded
from tests.support.api_client import ApiClient, ask
from tests.support.held_runner import HeldRunner
from tests.support.real_daemon import RealDaemon
from tests.support.until import until

SERVED = 30.0
PROMPT = "w1 w2 w3 w4"
"""Its text is in no line."""


class Recording(RealDaemon):
    """A daemon that records beside its store."""

    @property
    def trace(self) -> Path:
        return self.store.parent / "trace.jsonl"

    def arguments(self) -> list[str]:
        return ["--record", str(self.trace)]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for text in self.trace.read_text().splitlines() if (line := json.loads(text))["line"] == kind]


@pytest.fixture
def start(store: Path) -> Callable[..., Recording]:
    return lambda **variables: Recording(store, **variables)


async def generate(daemon: RealDaemon, model: str = "tiny", **options: Any) -> int:
    options = {"num_predict": 4, **options}
    status, _ = await ask(daemon.port, "/api/generate", within=SERVED, model=model, prompt=PROMPT, options=options)
    return status


async def test_each_end_has_its_line(start: Callable[..., Recording]) -> None:
    with start(OLLAMA_MAX_QUEUE="0", OLLAMA_MAX_LOADED_MODELS="1") as daemon:
        assert await generate(daemon) == 200
        async with ApiClient(daemon.port) as client:
            await client.post("/api/generate", model="tiny", prompt=PROMPT, options={"num_predict": 100_000})
            assert await client.status() == 200
            assert await client.record()
            assert await generate(daemon) == 503  # nobody may wait, and the one slot is taken
        await until(lambda: len(daemon.lines("request")) == 3, SERVED, lambda: daemon.log)
        async with ApiClient(daemon.port) as client:
            await client.post("/api/generate", model="tiny", prompt=PROMPT, options={"num_predict": 100_000})
            assert await client.record()
            daemon.children()[0].kill()
            assert "error" in (await client.records())[-1]
        assert await generate(daemon, "other") == 200
    by_outcome = {line["outcome"]: line for line in daemon.lines("request")}
    assert set(by_outcome) == {"answered", "refused", "cancelled", "failed"}
    assert by_outcome["refused"]["error"] == "QueueFullError"
    assert by_outcome["failed"]["error"] == "RunnerDiedError"
    assert by_outcome["cancelled"]["output_tokens"] >= 1
    assert by_outcome["cancelled"]["left"] > 0
    answered = [line for line in daemon.lines("request") if line["outcome"] == "answered"]
    for line in answered:
        assert (line["prompt_tokens"] > 4, line["output_tokens"]) == (True, 4)
        assert 0 < line["load"] <= line["first"] <= line["total"]
    loads = daemon.lines("load")
    assert [load["model"] for load in loads] == ["tiny:latest", "other:latest"]
    for load, line in zip(loads, answered, strict=True):
        assert load["gen"] == line["gen"]
        assert load["seconds"] == pytest.approx(line["load"], abs=0.05)
        assert load["bytes"] > 0
    assert daemon.lines("unload")[-1]["model"] == "other:latest"  # at the end of the daemon
    text = daemon.trace.read_text()
    assert PROMPT not in text
    assert str(daemon.store) not in text
    assert stat.S_IMODE(daemon.trace.stat().st_mode) == 0o600


def test_a_recording_can_be_planned_with(start: Callable[..., Recording]) -> None:
    async def three_requests() -> None:
        for model in ("tiny", "other", "tiny"):
            assert await generate(daemon, model, num_predict=50) == 200

    with start(OLLAMA_MAX_LOADED_MODELS="1") as daemon:
        trio.run(three_requests)
    trace = read_trace(daemon.trace)
    rates, _ = calibrate(trace)
    assert trace.header is not None
    machine, policy = from_header(trace.header), trace.header.policy
    real, told = recorded(trace), planned(forecast(Plan(trace=trace, machine=machine, rates=rates, policy=policy)))
    assert [(row.name, row.requests, row.loads, row.evicted) for row in told] == [
        ("other:latest", 1, 1, 1),
        ("tiny:latest", 2, 2, 1),
        ("all", 3, 3, 2),
    ]
    assert [(row.name, row.requests, row.loads, row.evicted) for row in real] == [
        (row.name, row.requests, row.loads, row.evicted) for row in told
    ]
    assert told[-1].first_p50 == pytest.approx(real[-1].first_p50, rel=0.5)


async def test_a_client_that_leaves_during_a_load(start: Callable[..., Recording]) -> None:
    with start() as daemon:
        with HeldRunner(daemon) as held:
            async with ApiClient(daemon.port) as client:
                await client.post("/api/generate", model="tiny", prompt=PROMPT)
                await held.caught()
            await until(lambda: daemon.lines("request"), SERVED, lambda: daemon.log)
        (line,) = daemon.lines("request")
        assert (line["outcome"], line["output_tokens"]) == ("cancelled", 0)
        assert "queue" not in line
    assert daemon.lines("load") == []


async def test_a_second_start_appends(start: Callable[..., Recording]) -> None:
    for _ in range(2):
        with start() as daemon:
            assert await generate(daemon) == 200
    assert len(daemon.lines("header")) == len(daemon.lines("request")) == 2
    assert len(daemon.lines("model")) == 2


def test_a_file_that_cannot_be_written_stops_the_start(start: Callable[..., Recording]) -> None:
    daemon = start()
    daemon.trace.mkdir()
    with pytest.raises(AssertionError, match=r"Error: .*(Is a directory|is a directory)"):
        daemon.start()


async def test_requests_that_end_with_the_daemon_are_in_the_file(start: Callable[..., Recording]) -> None:
    with start(TRIO_OLLAMA_DRAIN_TIMEOUT="0") as daemon:
        async with ApiClient(daemon.port) as client:
            await client.post("/api/generate", model="tiny", prompt=PROMPT, options={"num_predict": 100_000})
            assert await client.record()
            daemon.signal(signal.SIGTERM)
            with trio.fail_after(SERVED):
                await client.ended()
        daemon.wait(SERVED)
    (line,) = daemon.lines("request")
    assert line["outcome"] in ("failed", "cancelled")
