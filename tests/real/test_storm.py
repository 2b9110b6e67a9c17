"""Two thousand clients that leave at random moments, two models that have to take turns: nothing may stay behind."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trio

from tests.support.api_client import ApiClient, ask, get
from tests.support.daemon_log import DaemonLog
from tests.support.tiny_gguf import words
from tests.support.until import until
from tests.support.watched_daemon import WatchedDaemon

RecordProperty = Callable[[str, object], None]

REQUESTS = 2_000
AT_ONCE = 50
LONGEST_STAY = 1.0
"""Seconds, of clients that leave whatever they have got; most stay much shorter."""
PATIENCE = 5.0
"""Seconds, of the tenth that leaves in the middle of an answer if it can: however slow the machine, some get there."""
STORY = {"num_predict": 1_500}
CONNECTION = "trio._highlevel_serve_listeners._run_handler"
AT_REST = 10.0
"""Seconds; it takes tenths on an idle machine."""


@pytest.fixture
def daemon(store: Path) -> Iterator[WatchedDaemon]:
    with WatchedDaemon(store, OLLAMA_MAX_LOADED_MODELS="1", OLLAMA_NUM_PARALLEL="2") as daemon:
        yield daemon


async def visit(daemon: WatchedDaemon, chance: random.Random) -> None:
    """One client: it asks something of one of the models, reads for a while, and goes."""
    model = chance.choice(["tiny", "other"])
    message = {"role": "user", "content": words(chance.choice([1, 300]))}
    requests: list[tuple[str, dict[str, object]]] = [
        ("/api/chat", {"messages": [message], "options": STORY}),
        ("/api/chat", {"messages": [message], "options": STORY, "stream": False}),
        ("/api/generate", {"prompt": words(chance.randrange(1, 400)), "raw": True, "options": STORY}),
        ("/v1/chat/completions", {"messages": [message], "max_tokens": 1_500, "stream": True}),
        ("/api/generate", {}),
        ("/api/embed", {"input": [words(5)] * 50}),
    ]
    path, body = chance.choices(requests, weights=[6, 2, 4, 2, 1, 1])[0]
    leave = chance.choice([ApiClient.close, ApiClient.reset])
    patient = path == "/api/chat" and chance.random() < 0.2
    async with ApiClient(daemon.port) as client:
        with trio.move_on_after(PATIENCE if patient else LONGEST_STAY * chance.random() ** 2):
            await client.post(path, model=model, **body)
            if patient and await client.status() == 200 and body.get("stream", True):
                for _ in range(chance.randrange(30)):
                    await client.record()
            elif not patient:
                await client.ended()
        leave(client)


async def test_nothing_is_left_of_clients_that_left(daemon: WatchedDaemon, record_property: RecordProperty) -> None:
    await answers(daemon, "tiny")  # what is opened once for all is open now
    loaded_and_idle = await tasks_and_files(daemon, without=[CONNECTION, ": load"])
    await unload(daemon)
    idle = await tasks_and_files(daemon, without=[CONNECTION, "runner "])
    log = DaemonLog(daemon.log_path)

    chance = random.Random(20_260_101)
    places = trio.CapacityLimiter(AT_ONCE)

    async def in_turn(seed: int) -> None:
        async with places:
            await visit(daemon, random.Random(seed))

    started = trio.current_time()
    async with trio.open_nursery() as clients:
        for _ in range(REQUESTS):
            clients.start_soon(in_turn, chance.getrandbits(64))
    record_property("storm", trio.current_time() - started)

    # A normal request succeeds at once, be it with a load where the last one was given up.
    loaded = [model["name"] for model in (await get(daemon.port, "/api/ps"))["models"]]
    started = trio.current_time()
    await answers(daemon, loaded[0] if loaded else "tiny")
    record_property("answer after it", trio.current_time() - started)

    await until(lambda: not log.open_requests(), AT_REST, lambda: f"{log.open_requests()} hold nothing")
    assert len((await get(daemon.port, "/api/ps"))["models"]) == 1
    await until(lambda: len(daemon.children()) == 1, AT_REST, lambda: f"one runner, but {daemon.children()}")
    assert not log.matching("Traceback|ERROR"), daemon.log
    for stage in ("POST .* 499", "left after waiting", "is ready as", r"request \d+ gets", "stop: cancel task"):
        assert log.matching(stage), f"the storm never came to {stage!r}"
        record_property(stage, len(log.matching(stage)))

    assert await tasks_and_files(daemon, equal=loaded_and_idle) == loaded_and_idle
    await unload(daemon)
    assert await tasks_and_files(daemon, equal=idle) == idle


Rest = tuple[Counter[str], int]


async def tasks_and_files(daemon: WatchedDaemon, *, without: Sequence[str] = (), equal: Rest | None = None) -> Rest:
    """The daemon's tasks, and how many files and sockets it has open, when no task's name contains one of `without`
    and all is as in `equal`; after a while also if it is not."""
    end = trio.current_time() + AT_REST
    while True:
        tasks = await daemon.tasks()
        found = Counter({re.sub(r"\d+", "N", name): count for name, count in tasks.items()}), daemon.files_and_sockets()
        rests = found == equal or (equal is None and not any(word in name for name in tasks for word in without))
        if rests or trio.current_time() > end:
            return found


async def answers(daemon: WatchedDaemon, model: str) -> None:
    options = {"num_predict": 4}
    status, answer = await ask(daemon.port, "/api/generate", within=AT_REST, model=model, prompt="w1", options=options)
    assert status == 200, answer
    assert answer["eval_count"] == 4


async def unload(daemon: WatchedDaemon) -> None:
    for model in (await get(daemon.port, "/api/ps"))["models"]:
        await ask(daemon.port, "/api/generate", model=model["name"], keep_alive=0)
    await until(lambda: not daemon.children(), AT_REST, lambda: f"no runner, but {daemon.children()}")
