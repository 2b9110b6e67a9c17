"""`plan`: small traces whose figures can be computed by hand."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from simulations.plan.forecast import Forecast, Plan, forecast
from simulations.plan.machine import Machine
from simulations.plan.rates import ModelRates, Rates
from simulations.plan.reading import parse_trace
from simulations.plan.sweep import SweepError, combinations, parse_sweep, turn
from simulations.plan.table import percentile, planned
from simulations.verbs import plan as verb
from trio_ollama.scheduler import Policy

Output = pytest.CaptureFixture[str]

RATES = Rates(
    usual=ModelRates(load_constant=2, prefill=1000, token=0.01, overhead=0),
    load_byte=0,
    within=0.5,
    beside=1,
    exit=0.1,
)
"""Loads of 2 s; with 100 tokens of prompt and 101 of answer a request takes 0.1 s and another second, alone."""


def request(at: float, model: str = "a", **more: Any) -> dict[str, Any]:
    return {"at": at, "model": model, "prompt_tokens": 100, "output_tokens": 101, **more}


def played(*lines: dict[str, Any], gpus: Sequence[float] = (24,), rates: Rates = RATES, **policy: Any) -> Forecast:
    trace = parse_trace(map(json.dumps, lines))
    machine = Machine().with_gpus(gpus)
    return forecast(Plan(trace=trace, machine=machine, rates=rates, policy=replace(Policy(), **policy)))


def test_one_request() -> None:
    (seen,) = played(request(1)).seen
    assert seen.outcome == "answered"
    assert seen.queue == pytest.approx(0)
    assert seen.load == pytest.approx(2)
    assert seen.first == pytest.approx(2.1)
    assert seen.total == pytest.approx(3.1)


def test_one_slot_serves_one_after_the_other() -> None:
    first, second = played(request(0), request(2)).seen
    assert first.total == pytest.approx(3.1)
    assert second.queue == pytest.approx(1.1)
    assert second.load == pytest.approx(0)
    assert second.first == pytest.approx(1.2)


def test_two_slots_slow_each_other_down() -> None:
    result = played(request(0), request(0), num_parallel=2)
    for seen in result.seen:
        assert seen.first == pytest.approx(2 + 0.15, abs=0.02)
        assert seen.total == pytest.approx(2 + 1.65, abs=0.1)
    assert result.loads == ["a"]


def test_two_models_share_a_gpu_or_have_one_each() -> None:
    together = played(request(0), request(0, "b"))
    # One load at a time on a GPU; the first answer is over by the time the second one begins.
    assert [seen.total for seen in together.seen] == [pytest.approx(3.1), pytest.approx(5.1)]
    assert [seen.queue for seen in together.seen] == [pytest.approx(0), pytest.approx(2)]
    apart = played(request(0), request(0, "b"), gpus=(24, 24))
    assert [seen.total for seen in apart.seen] == [pytest.approx(3.1), pytest.approx(3.1)]


def test_models_that_do_not_fit_beside_each_other_take_turns() -> None:
    lines = [request(at, model) for at, model in ((0, "a"), (4, "b"), (8, "a"))]
    result = played(*lines, gpus=(6,))
    assert result.loads == ["a", "b", "a"]
    # 0.1 s until the other one is gone, plus at most the recovery of its memory, then the load.
    assert [seen.load for seen in result.seen] == [pytest.approx(2)] * 3
    assert result.seen[1].queue == pytest.approx(0.1, abs=0.3)
    assert [row.evicted for row in planned(result)] == [1, 1, 2]


def test_keep_alive() -> None:
    lines = [request(0), request(100), request(200)]
    assert len(played(*lines, keep_alive=300 * 10**9).loads) == 1
    assert len(played(*lines, keep_alive=50 * 10**9).loads) == 3
    assert len(played(request(0, keep_alive=-1), *lines[1:], keep_alive=50 * 10**9).loads) == 1


def test_a_client_that_leaves() -> None:
    left, other = played(request(0, left=2.5), request(1)).seen
    assert left.outcome == "cancelled"
    assert left.total == pytest.approx(2.5)
    assert left.first == pytest.approx(2.1)
    assert other.queue == pytest.approx(0.5, abs=0.05)
    quick, _ = played(request(0, left=5), request(1)).seen
    assert quick.outcome == "answered"


def test_a_client_that_left_in_the_middle_would_do_so_again() -> None:
    """Its answer was longer than what it saw of it; of one that left before its answer nobody knows."""

    def left(at: float, tokens: int) -> dict[str, Any]:
        return {
            "at": at,
            "model": "a",
            "outcome": "cancelled",
            "left": 3.5,
            "prompt_tokens": 100,
            "output_tokens": tokens,
        }

    cut, waited, _ = played(left(0, 3), left(10, 0), request(20)).seen
    assert (cut.outcome, waited.outcome) == ("cancelled", "answered")


def test_a_queue_that_is_full() -> None:
    result = played(*(request(0) for _ in range(4)), queue_bound=2)  # whoever waits for a load is in the queue, too
    assert [seen.outcome for seen in result.seen].count("refused") == 2
    assert [row.refused for row in planned(result)] == [2, 2]
    assert {seen.error for seen in result.seen if seen.error} == {"QueueFullError"}


def test_a_model_that_never_fits() -> None:
    model = {"line": "model", "name": "a", "file_size": 500 << 30}
    (seen,) = played(model, request(0)).seen
    assert (seen.outcome, seen.error) == ("refused", "NeverFitsError")


def test_an_embedding_has_a_turn_for_each_text() -> None:
    embed = {"at": 0, "model": "a", "what": "embed", "inputs": 4, "prompt_tokens": 400}
    (seen,) = played(embed).seen
    assert seen.first == seen.total == pytest.approx(2.4)


def test_a_request_that_only_loads() -> None:
    result = played({"at": 0, "model": "a", "what": "load"}, request(5))
    assert [seen.total for seen in result.seen] == [pytest.approx(2), pytest.approx(1.1)]


def test_a_long_answer_is_not_taken_for_a_hung_runner() -> None:
    """An evicted model finishes an answer of ten minutes first."""
    result = played(request(0, output_tokens=60_001), request(5, "b"), gpus=(6,))
    assert [seen.outcome for seen in result.seen] == ["answered", "answered"]


def test_a_model_with_a_part_in_ram_is_told() -> None:
    assert played(request(0), gpus=(2,)).split == {"a"}
    assert played(request(0)).split == set()


def test_the_same_plan_gives_the_same_forecast() -> None:
    lines = [request(number / 7, "abc"[number % 3]) for number in range(30)]
    assert played(*lines, gpus=(6,), num_parallel=2).seen == played(*lines, gpus=(6,), num_parallel=2).seen


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([3, 1, 2], 50) == 2
    assert percentile(range(1, 101), 95) == 95
    assert percentile([], 50) is None


# -- sweeps -----------------------------------------------------------------------------------------------------


def test_all_combinations() -> None:
    plan = Plan(trace=parse_trace([json.dumps(request(0))]), machine=Machine())
    found = combinations(plan, [parse_sweep("gpus=24,24+24,0"), parse_sweep("keep-alive=1m,-1")])
    assert [words for words, _ in found] == [
        f"gpus {gpus}, keep-alive {keep}" for gpus in ("24", "24+24", "0") for keep in ("1m", "-1")
    ]
    assert [len(varied.machine.gpus) for _, varied in found] == [1, 1, 2, 2, 0, 0]
    assert found[0][1].policy.keep_alive == 60 * 10**9
    assert found[1][1].policy.keep_alive == (1 << 63) - 1


@pytest.mark.parametrize("text", ["nonsense=1", "parallel", "parallel=", "gpus="])
def test_a_sweep_that_cannot_be_understood(text: str) -> None:
    with pytest.raises(SweepError):
        parse_sweep(text)


@pytest.mark.parametrize(
    ("knob", "value"),
    [("parallel", "0"), ("parallel", "x"), ("keep-alive", "5 days"), ("gpus", "24+x"), ("speed", "0")],
)
def test_values_that_cannot_be_understood(knob: str, value: str) -> None:
    plan = Plan(trace=parse_trace([json.dumps(request(0))]), machine=Machine())
    with pytest.raises(SweepError):
        turn(plan, knob, value)


# -- the verb ---------------------------------------------------------------------------------------------------


Invoke = Callable[..., int]


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    """`plan TRACE ARGUMENTS...` with a trace of these requests."""

    def run(lines: Sequence[dict[str, Any]], *arguments: str) -> int:
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        parser = argparse.ArgumentParser()
        verb.arguments(parser)
        return verb.main(parser.parse_args([str(path), *arguments]))

    return run


def test_a_table(invoke: Invoke, capsys: Output) -> None:
    assert invoke([request(0), request(9, "b")], "--gpu", "24", "--gpu", "24") == 0
    out = capsys.readouterr().out
    assert "2 requests on GPUs of 24 + 24 GiB" in out
    assert [line.split()[:2] for line in out.partition("planned\n")[2].splitlines()[1:4]] == [
        ["a", "1"],
        ["b", "1"],
        ["all", "2"],
    ]
    assert "recorded" not in out.partition("planned")[0].partition("note")[0]


def test_json_and_a_picture(invoke: Invoke, capsys: Output, tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    arguments = ["--sweep", "parallel=1,2", "--sweep", "gpus=6,24+24", "--json", "-o", str(picture)]
    assert invoke([request(0), request(0), request(1, "b")], *arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["combination"] for each in report["sweep"]] == [
        "parallel 1, gpus 6",
        "parallel 1, gpus 24+24",
        "parallel 2, gpus 6",
        "parallel 2, gpus 24+24",
    ]
    alone, together = (each["models"][-1] for each in report["sweep"][1::2])
    assert alone["queue_p95"] > together["queue_p95"]
    drawn = ElementTree.fromstring(picture.read_text())
    assert "parallel 2, gpus 24+24" in " ".join(drawn.itertext())


def test_a_machine_in_a_file(invoke: Invoke, capsys: Output, tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    models = {"a": {"size": 7, "tokens": 100, "prefill": 500, "load_constant": 3, "overhead": 0}}
    machine.write_text(json.dumps({"gpus": [24], "ram": 32, "models": models}))
    assert invoke([request(0)], "--machine", str(machine), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"] == "GPUs of 24 GiB, 32 GiB of RAM"
    assert report["planned"][0]["first_p50"] == pytest.approx(3 + 7 + 0.2)
    machine.write_text('{"gpus": "many"}')
    assert invoke([request(0)], "--machine", str(machine)) == 1
    machine.write_text('{"models": {"a": {"colour": 1}}}')
    assert invoke([request(0)], "--machine", str(machine)) == 1
    assert "'colour'" in capsys.readouterr().err


def test_a_broken_trace_is_told_with_its_line(invoke: Invoke, capsys: Output) -> None:
    assert invoke([request(0), {"at": "noon", "model": "a"}]) == 1
    assert capsys.readouterr().err == 'Error: trace.jsonl:2: "at" must be a number\n'


def test_a_model_that_moves_to_ram_is_told_and_one_that_was_there_is_not(invoke: Invoke, capsys: Output) -> None:
    load = {"line": "load", "at": 0, "model": "a", "gen": 1, "seconds": 1, "reserved": {"cpu": 1}, "placement": "cpu"}
    assert invoke([load, request(0), request(9, "b")], "--gpu", "0") == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if "in RAM" in line]
    assert [note.split(":")[1].strip() for note in notes] == ["b"]
