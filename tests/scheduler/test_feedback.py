"""What loads have taken is known to the next ones, and is kept: no more of it than there is room for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import trio

from tests.support.until import until
from trio_ollama.runners.contract import HOST, LoadReport
from trio_ollama.scheduler import Demand, Feedback, ModelFacts, Observation
from trio_ollama.scheduler.core.measured import Taken
from trio_ollama.scheduler.feedback import LAUNCHES, MODELS, taken

A = ModelFacts("a", "a", "/blobs/sha256-aa", file_size=1)
B = ModelFacts("b", "b", "/blobs/sha256-bb", file_size=1)


def seen(found: int, *, num_ctx: int = 4096) -> Observation:
    return Observation(num_ctx, 1, 512, "", 1, 100, found, 0, 0)


def known(feedback: Feedback, model: ModelFacts) -> list[int]:
    return [each.gpu_measured for each in feedback.informed(Demand(model)).model.observed]


@pytest.mark.parametrize(
    ("buffers", "gpus", "result"),
    [
        ({}, ("a",), Taken(None, None, 7, 5)),
        ({(HOST, "model"): 9}, (), Taken({}, 9, 7, 5)),
        ({(HOST, "model"): 9}, ("a",), Taken({"a": 0}, 9, 7, 5)),
        ({("CUDA0", "KV"): 1, ("CUDA1", "KV"): 2, ("CUDA1", "model"): 4}, ("x", "y"), Taken({"x": 1, "y": 6}, 0, 7, 5)),
        ({("Metal", "KV"): 1}, ("m",), Taken({"m": 1}, 0, 7, 5)),
        ({("CUDA1", "KV"): 1, (HOST, "KV"): 3}, ("a",), Taken(None, 3, 7, 5)),
    ],
)
def test_devices_have_other_names_for_the_child(
    buffers: Mapping[tuple[str, str], int], gpus: Sequence[str], result: Taken
) -> None:
    assert taken(LoadReport(1, 1, 1, buffers, 7, 5), gpus) == result


def test_a_demand_knows_what_was_noted_of_its_model() -> None:
    feedback = Feedback()
    assert feedback.informed(Demand(A)) == Demand(A)
    feedback.note(A, seen(110))
    assert known(feedback, A) == [110]
    assert known(feedback, replace(A, name="other", path="/other/sha256-aa")) == [110]
    assert known(feedback, B) == []


def test_the_last_of_each_configuration_is_kept_and_only_so_many() -> None:
    feedback = Feedback()
    for found in (1, 2):
        for num_ctx in range(3):
            feedback.note(A, seen(found, num_ctx=num_ctx))
    assert known(feedback, A) == [2, 2, 2]
    for num_ctx in range(1000):
        feedback.note(A, seen(num_ctx, num_ctx=num_ctx))
    assert known(feedback, A) == list(range(1000 - LAUNCHES, 1000))


def test_models_are_forgotten_the_oldest_first() -> None:
    feedback = Feedback()
    models = [replace(A, path=f"/{number}") for number in range(MODELS + 2)]
    for number, model in enumerate(models):
        feedback.note(model, seen(number))
        feedback.note(models[0], seen(number))
    assert known(feedback, models[0]) == [MODELS + 1]
    assert known(feedback, models[1]) == []
    assert known(feedback, models[-1]) == [MODELS + 1]


async def test_what_is_new_is_saved_off_the_loop_and_nothing_else_is() -> None:
    saved: list[dict[str, list[int]]] = []
    threads = set()

    def save(history: Mapping[str, Sequence[Observation]]) -> None:
        threads.add(threading.current_thread())
        saved.append({key: [each.gpu_measured for each in observations] for key, observations in history.items()})

    feedback = Feedback({"sha256-aa": [seen(1)]}, save)
    assert feedback.lasting
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feedback.run)
        await trio.testing.wait_all_tasks_blocked()
        assert not saved
        feedback.note(A, seen(1))  # as before
        await trio.testing.wait_all_tasks_blocked()
        assert not saved
        feedback.note(B, seen(2))
        await until(lambda: bool(saved), 5.0, lambda: "not saved")
        nursery.cancel_scope.cancel()
    assert saved == [{"sha256-aa": [1], "sha256-bb": [2]}]
    assert threading.current_thread() not in threads


async def test_a_disk_that_takes_nothing_is_told_of_once_and_the_memory_stays(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    def save(history: object) -> None:
        nonlocal calls
        calls += 1
        raise PermissionError(13, "Permission denied")

    feedback = Feedback(save=save)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feedback.run)
        with caplog.at_level(logging.WARNING):
            for number in (1, 2):
                feedback.note(A, seen(number))
                await until(lambda number=number: calls == number, 5.0, lambda: "not tried")  # type: ignore[misc]
                await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [record.message for record in caplog.records] == [
        "what models really take cannot be kept for the next start: [Errno 13] Permission denied"
    ]
    assert known(feedback, A) == [2]
