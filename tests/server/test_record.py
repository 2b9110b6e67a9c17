"""`serve --record`: one line for each request, whatever becomes of it, and not a word of its texts."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.asgi_client import Answer, send
from tests.support.fake_scheduler import FakeScheduler, chat_end, chat_events
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import until
from trio_ollama.models.metadata_cache import MetadataCache
from trio_ollama.models.store import Store
from trio_ollama.runners.contract import RunnerDiedError
from trio_ollama.scheduler import Because, Policy, QueueFullError
from trio_ollama.scheduler.core.events import DrainStarted, LoadFailed, LoadStarted, RunnerLoaded
from trio_ollama.scheduler.core.values import DeviceFacts
from trio_ollama.server import record_file
from trio_ollama.server.app import create_app
from trio_ollama.server.asgi import App
from trio_ollama.server.record import Recorder
from trio_ollama.server.record_file import RecordFile
from trio_ollama.settings import Settings

SECRET = "a secret of the user"
ANSWER = "a secret of the model"
MESSAGES = [{"role": "user", "content": SECRET}]
GIB = 1 << 30


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass
class Recorded:
    """An application that records, over a scheduler that plays from a script."""

    app: App
    scheduler: FakeScheduler
    recorder: Recorder
    file: RecordFile
    path: Path

    async def post(self, path: str, **body: Any) -> Answer:
        return await send(self.app, "POST", path, body)

    def lines(self, kind: str = "request") -> list[dict[str, Any]]:
        self.file.flush()
        return [line for line in read(self.path) if line["line"] == kind]

    def request(self) -> dict[str, Any]:
        (line,) = self.lines()
        return line


@pytest.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Recorded]:
    store = OllamaStore(tmp_path / "models")
    store.add("tiny:latest", write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes())
    path = tmp_path / "trace.jsonl"
    file, scheduler = RecordFile(path), FakeScheduler()
    recorder = Recorder(file)
    recorder.header([DeviceFacts("cpu", 64, 32, library="cpu")], Policy(), gpu_overhead=0, default_context=4096)
    app = create_app(
        settings=Settings(),
        scheduler=scheduler,  # type: ignore[arg-type]
        store=Store(store.root),
        metadata_cache=MetadataCache(),
        recorder=recorder,
    )
    yield Recorded(app, scheduler, recorder, file, path)
    file.close()
    text = path.read_text()
    assert SECRET not in text
    assert ANSWER not in text
    assert str(tmp_path) not in text


async def test_an_answer(recorded: Recorded) -> None:
    recorded.scheduler.script = lambda path, body: [chat_events(*ANSWER.split()), [chat_end()]]
    await recorded.post(
        "/api/chat", model="tiny", messages=MESSAGES, keep_alive="90s", options={"num_ctx": 512, "seed": 5}
    )
    line = recorded.request()
    assert line["outcome"] == "answered"
    assert line["what"] == "generate"
    assert line["model"] == "tiny:latest"
    assert (line["prompt_tokens"], line["cached_tokens"], line["output_tokens"]) == (7, 2, 3)
    assert (line["prompt_time"], line["output_time"]) == (0.0015, 0.0025)
    assert line["options"] == {"num_ctx": 512, "num_ctx_auto": False}
    assert line["keep_alive"] == 90
    assert 0 <= line["queue"] <= line["first"] <= line["total"]
    assert line["load"] == 0
    assert "left" not in line
    (model,) = recorded.lines("model")
    assert model["name"] == "tiny:latest"
    assert model["file_size"] == line["size"] > 0
    assert model["weights"].startswith("sha256-")


async def test_a_model_is_described_once(recorded: Recorded) -> None:
    for _ in range(3):
        await recorded.post("/api/generate", model="tiny", prompt=SECRET)
    assert len(recorded.lines("model")) == 1
    assert len(recorded.lines()) == 3


async def test_a_refusal(recorded: Recorded) -> None:
    recorded.scheduler.refusal = QueueFullError()
    answer = await recorded.post("/api/generate", model="tiny", prompt=SECRET)
    assert answer.status == 503
    line = recorded.request()
    assert (line["outcome"], line["error"]) == ("refused", "QueueFullError")
    assert "queue" not in line
    assert line["options"] == {}


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_failure_after_the_first_token(recorded: Recorded, streamed: bool) -> None:
    recorded.scheduler.script = lambda path, body: [chat_events("a", "b"), RunnerDiedError(f"died of {SECRET}")]
    await recorded.post("/api/chat", model="tiny", messages=MESSAGES, stream=streamed)
    line = recorded.request()
    assert (line["outcome"], line["error"], line["output_tokens"]) == ("failed", "RunnerDiedError", 2)


async def test_a_failure_before_the_first_token(recorded: Recorded) -> None:
    recorded.scheduler.script = lambda path, body: RunnerDiedError("gone")
    await recorded.post("/api/chat", model="tiny", messages=MESSAGES)
    assert (recorded.request()["outcome"], recorded.request()["error"]) == ("failed", "RunnerDiedError")


async def test_a_client_that_leaves(recorded: Recorded) -> None:
    progress = {"choices": [{"delta": {}, "finish_reason": None}], "prompt_progress": {"total": 40, "processed": 10}}
    recorded.scheduler.script = lambda path, body: [[progress], chat_events("a"), None]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: recorded.post("/api/chat", model="tiny", messages=MESSAGES))
        await recorded.scheduler.waiting.wait()
        nursery.cancel_scope.cancel()
    line = recorded.request()
    assert line["outcome"] == "cancelled"
    assert line["left"] == line["total"] >= line["first"] > 0
    assert (line["prompt_tokens"], line["output_tokens"]) == (40, 1)


async def test_a_load_and_an_embedding(recorded: Recorded) -> None:
    recorded.scheduler.answers["/v1/embeddings"] = lambda body: {
        "data": [{"embedding": [1.0, 0.0]}],
        "usage": {"prompt_tokens": 5},
    }
    await recorded.post("/api/generate", model="tiny", keep_alive=-1)
    await recorded.post("/api/embed", model="tiny", input=[SECRET, SECRET])
    load, embedding = recorded.lines()
    assert (load["what"], load["outcome"], load["keep_alive"], load["output_tokens"]) == ("load", "answered", -1, 0)
    assert (embedding["what"], embedding["outcome"]) == ("embed", "answered")
    assert (embedding["inputs"], embedding["prompt_tokens"]) == (2, 10)


async def test_what_never_reaches_a_model_is_not_recorded(recorded: Recorded) -> None:
    assert (await recorded.post("/api/generate", model="nobody", prompt=SECRET)).status == 404
    assert recorded.lines() == []


async def test_loads_and_unloads(recorded: Recorded) -> None:
    began = recorded.recorder._began
    at = [round((began + seconds) * 1e9) for seconds in (1, 3.5, 4, 5)]
    reserved = (("GPU-0", 4 * GIB), ("cpu", GIB))
    started = LoadStarted(at[0], "tiny:latest", 1, 1, Because.FITS, "partial", ("GPU-0",), reserved, 4096, 512, 2, "")
    recorded.recorder.happened(started)
    recorded.recorder.happened(RunnerLoaded(at[1], "tiny:latest", 1, 42, at[1] - at[0], 5 * GIB, 4 * GIB, 1))
    assert recorded.recorder.loading(1, began + 2, began + 9) == pytest.approx(1.5)
    assert recorded.recorder.loading(1, began + 4, began + 9) == 0
    recorded.recorder.happened(DrainStarted(at[2], "tiny:latest", 1, Because.EVICTED_FOR, 7, 0))
    recorded.recorder.happened(replace(started, at=at[2], gen=2))
    recorded.recorder.happened(LoadFailed(at[3], "tiny:latest", 2, SECRET, 1))
    load, failed = recorded.lines("load")
    assert load == {
        "line": "load",
        "at": 1,
        "model": "tiny:latest",
        "gen": 1,
        "reserved": {"GPU-0": 4 * GIB, "cpu": GIB},
        "placement": "partial",
        "num_ctx": 4096,
        "num_batch": 512,
        "parallel": 2,
        "seconds": 2.5,
        "bytes": 5 * GIB,
        "gpu_bytes": 4 * GIB,
    }
    assert (failed["gen"], failed["failed"], failed["seconds"]) == (2, True, 1)
    (unload,) = recorded.lines("unload")
    assert (unload["gen"], unload["because"]) == (1, str(Because.EVICTED_FOR))


async def test_the_header(recorded: Recorded) -> None:
    (header,) = recorded.lines("header")
    assert header["format"] == 1
    assert header["devices"][0] | {"id": "cpu", "total": 64, "reported_free": 32} == header["devices"][0]
    assert header["policy"]["keep_alive"] == 300 * 10**9
    assert header["default_context"] == 4096


# -- the file ---------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def written(path: Path, *lines: dict[str, Any]) -> None:
    file = RecordFile(path)
    for line in lines:
        file.put(line)
    file.close()


def test_only_its_owner_reads_it(path: Path) -> None:
    written(path, {"n": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_grows(path: Path) -> None:
    written(path, {"n": 1})
    with path.open("a") as file:
        file.write('{"torn')
    written(path, {"n": 2})
    assert path.read_text() == '{"n":1}\n{"torn\n{"n":2}\n'


async def test_lines_are_written_while_it_runs(path: Path) -> None:
    file = RecordFile(path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.run)
        file.put({"n": 1})
        await until(path.read_bytes, 10, lambda: "nothing was written")
        nursery.cancel_scope.cancel()
    file.put({"n": 2})
    file.close()
    assert [line["n"] for line in read(path)] == [1, 2]


def test_a_slow_disk_costs_lines_and_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "QUEUED", 3)
    file = RecordFile(path)
    for number in range(5):
        file.put({"n": number})
    file.flush()
    for number in range(5, 9):
        file.put({"n": number})
    file.close()
    assert [line.get("n", f"{line.get('count')} left out") for line in read(path)] == [
        *(0, 1, 2, "2 left out"),
        *(5, 6, "2 left out"),
    ]


def full_after(room: int) -> Callable[[int, bytes], int]:
    """`os.write` on a disk that has room for so many bytes."""
    left = room
    write = os.write

    def writing(file: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, data[:left])
        left -= count
        return count

    return writing


async def test_a_full_disk_ends_the_recording_with_one_warning(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = RecordFile(path)
    monkeypatch.setattr(os, "write", full_after(20))
    with caplog.at_level(logging.WARNING), trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.run)
            for number in range(10):
                file.put({"n": number})
        file.put({"n": 11})
        file.close()
    assert [line["n"] for line in read(path)] == [0, 1]  # whole lines only
    assert len(caplog.records) == 1


async def test_a_write_that_hangs_does_not_hold_up_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordFile(path)
    reader, writer = os.pipe()
    began = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def hang(_: int, data: bytes) -> int:
        token.run_sync_soon(began.set)
        os.read(reader, 1)
        return len(data)

    monkeypatch.setattr(os, "write", hang)
    monkeypatch.setattr(record_file, "LAST_WRITE", 0.01)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.run)
            file.put({"n": 1})
            await began.wait()
            nursery.cancel_scope.cancel()
        file.close()
    os.close(writer)
    os.close(file._file)


def test_what_cannot_be_recorded_into(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(OSError, match="trace"):
        RecordFile(path)
    with pytest.raises(OSError, match="Is a directory"):
        RecordFile(path.parent)
