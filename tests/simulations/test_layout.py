"""Simulated processes put a model where llama.cpp would, and what they say of it is what is held for them (I07)."""

from __future__ import annotations

import pytest

from simulations.scenarios import Fault, Request, Run, Scenario, What, play
from simulations.world.hardware import GIB
from simulations.world.layout import layout
from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler import supervisor
from trio_ollama.scheduler.core.measured import Taken

FREE = {"G": 24 * GIB, "H": 8 * GIB}


@pytest.mark.parametrize(
    ("gpus", "layers", "size", "wanted"),
    [
        ((), -1, 10, {"cpu": 10}),
        (("G",), 0, 10, {"cpu": 10}),
        (("G",), -1, 10, {"G": 10}),
        (("G",), -1, 30, {"G": 23, "cpu": 7}),  # all but a margin of 1 GiB
        (("G", "H"), -1, 30, {"G": 23, "H": 7}),
        (("H", "G"), -1, 15, {"H": 3.5, "G": 11.5}),  # in proportion to what is free
        (("H",), 11, 33, {"H": 11, "cpu": 22}),  # as it was told, whatever is free
        (("H",), 33, 33, {"H": 33}),
    ],
)
def test_where_layers_go(gpus: tuple[str, ...], layers: int, size: float, wanted: dict[str, float]) -> None:
    spec = LaunchSpec(model="m", num_ctx=4096, gpu_layers=layers, visible_devices=gpus)
    found = layout(spec, round(size * GIB), FREE.__getitem__)
    assert {id_: amount / GIB for id_, amount in found.items()} == wanted


def test_nothing_is_lost_where_nothing_is_free() -> None:
    spec = LaunchSpec(model="m", num_ctx=4096, gpu_layers=16, visible_devices=("G", "H", "I"))
    assert sum(layout(spec, 33 * GIB + 1, lambda id_: 0).values()) == 33 * GIB + 1


PARTIAL = Scenario(
    gpus=(24, 8),
    models={"large": 40, "half": 16.5, "x": 4},
    requests=(
        Request(model="large", keep_alive=2),
        Request(model="half", at=10, num_gpu=16, hold=5),
        Request(model="x", at=13),
    ),
)


def on(run: Run, model: str) -> dict[str, float]:
    (process,) = [process for process in run.processes if process.spec.model == model]
    return {id_: amount / GIB for id_, amount in process.footprint.items()}


def test_a_part_of_a_model_is_in_ram() -> None:
    run = play(PARTIAL)
    assert not run.broken
    assert on(run, "large") == {"GPU-0": 23, "GPU-1": 7, "cpu": 10}
    assert sum(on(run, "half").values()) == 16.5
    assert on(run, "half")["cpu"] == pytest.approx(16.5 * 17 / 33)
    assert on(run, "x").keys() == {"GPU-0"}


def test_a_report_that_is_misread_breaks_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """I07."""
    monkeypatch.setattr(supervisor, "taken", lambda report, gpus: Taken(None, None))
    (broken, *_) = play(PARTIAL).broken
    assert broken.startswith("I07: ")
    assert "which has" in broken


def test_a_process_may_hang_again() -> None:
    faults = [Fault(at=at, what=What.HANG, target="a", amount=on) for at, on in ((3, 1), (4, 0), (5, 1), (20, 0))]
    run = play(Scenario(requests=(Request(), Request(at=3.5), Request(at=5.5)), faults=tuple(faults)))
    assert [round(client.ended_at or 0) for client in run.clients] == [2, 4, 20]
