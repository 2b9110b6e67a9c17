"""Traces: what is read of them, what is wrong with them, and the rates that come from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from simulations.plan.calibrate import calibrate
from simulations.plan.machine import from_header
from simulations.plan.reading import TraceError, parse_trace
from simulations.plan.table import recorded
from trio_ollama.scheduler import LoadOptions

GIB = 1 << 30
HEADER = {
    "line": "header",
    "format": 1,
    "started": "2026-01-01T00:00:00Z",
    "devices": [
        {"id": "GPU-x", "total": 24 * GIB, "reported_free": 23 * GIB},
        {"id": "cpu", "total": 64 * GIB, "reported_free": 60 * GIB},
    ],
    "policy": {"num_parallel": 3, "unknown": 1},
}


def lines(*objects: dict[str, Any]) -> Iterator[str]:
    return (json.dumps(each) + "\n" for each in objects)


def asked(at: float = 0, **more: Any) -> dict[str, Any]:
    return {"line": "request", "at": at, "model": "a", **more}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "trace:2: this is not JSON"),
        ("[]", "trace:2: a line must be a JSON object"),
        ('{"at": 1}', 'trace:2: "model" is missing'),
        ('{"model": "a"}', 'trace:2: "at" is missing'),
        ('{"at": -1, "model": "a"}', 'trace:2: "at" must not be negative'),
        ('{"at": NaN, "model": "a"}', 'trace:2: "at" must be a number'),
        ('{"at": 1, "model": 7}', 'trace:2: "model" must be a text'),
        ('{"at": 1, "model": "a", "prompt_tokens": 1.5}', 'trace:2: "prompt_tokens" must be a whole number'),
        ('{"at": 1, "model": "a", "output_tokens": -1}', 'trace:2: "output_tokens" must not be negative'),
        ('{"at": 1, "model": "a", "what": "draw"}', "trace:2: \"what\": 'draw' is none of"),
        ('{"at": 1, "model": "a", "outcome": "fine"}', "trace:2: \"outcome\": 'fine' is none of"),
        ('{"line": "novel"}', "trace:2: there are no lines of kind 'novel'"),
        ('{"line": "header", "format": 9}', "trace:2: its format is 9"),
        ('{"line": "header", "started": "soon"}', "trace:2: \"started\": 'soon' is not a date"),
    ],
)
def test_what_is_wrong_with_a_line(line: str, text: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_trace([*lines(asked()), line + "\n", *lines(asked())])
    assert str(caught.value).startswith(text)


def test_an_empty_trace() -> None:
    with pytest.raises(TraceError, match="no request"):
        parse_trace(lines(HEADER))


def test_half_a_line_of_a_daemon_that_was_killed() -> None:
    """Before the next start, or at the very end, nobody could help it; anywhere else it is an error."""
    whole = list(lines(HEADER, asked()))
    assert len(parse_trace([*whole, '{"line": "re\n', *whole]).requests) == 2
    assert len(parse_trace([*whole, '{"line": "re']).requests) == 1
    with pytest.raises(TraceError, match="trace:3"):
        parse_trace([*whole, '{"line": "re\n'])


def test_a_second_start_goes_on_with_the_first_ones_clock() -> None:
    later = {**HEADER, "started": "2026-01-01T00:01:40Z"}
    trace = parse_trace(lines(HEADER, asked(5, gen=1, outcome="answered"), later, asked(5, gen=1, outcome="answered")))
    assert [each.at for each in trace.requests] == [5, 105]
    assert len({each.seen.gen for each in trace.requests if each.seen}) == 2


def test_the_machine_of_the_header() -> None:
    trace = parse_trace(lines(HEADER, asked()))
    machine = from_header(trace.header)
    assert machine.gpus == {"GPU-x": 24 * GIB}
    assert machine.ram == 64 * GIB
    assert machine.foreign == {"GPU-x": GIB, "cpu": 4 * GIB}
    assert trace.header is not None
    assert trace.header.policy.num_parallel == 3


def test_a_context_by_hand_is_somebodys_wish_and_a_recorded_one_says_whose() -> None:
    by_hand, automatic, wished = parse_trace(
        lines(
            asked(0, options={"num_ctx": 512}),
            asked(1, options={"num_ctx": 512}, outcome="answered"),
            asked(2, options={"num_ctx": 512, "num_ctx_auto": False}, outcome="answered"),
        )
    ).requests
    assert [each.options.num_ctx_auto for each in (by_hand, automatic, wished)] == [False, True, False]
    assert parse_trace(lines(asked())).requests[0].options == LoadOptions()


def test_of_an_answer_that_broke_off_nobody_knows_the_length() -> None:
    (request,) = parse_trace(lines(asked(outcome="cancelled", left=1, prompt_tokens=5, output_tokens=3))).requests
    assert (request.prompt_tokens, request.output_tokens) == (5, None)
    (request,) = parse_trace(lines(asked(outcome="cancelled", left=1, prompt_tokens=0, output_tokens=0))).requests
    assert request.prompt_tokens is None


# -- rates ------------------------------------------------------------------------------------------------------


def answer(at: float, gen: int = 1, *, slowdown: float = 1.0, model: str = "a", tokens: int = 101) -> dict[str, Any]:
    """100 tokens of a prompt in 0.2 s, an overhead of 0.05 s, and 10 ms for each token, all of it slowed down."""
    first = 0.2 * slowdown + 0.05
    return asked(
        at,
        model=model,
        gen=gen,
        outcome="answered",
        prompt_tokens=140,
        cached_tokens=40,
        output_tokens=tokens,
        queue=0,
        load=0,
        first=first,
        prompt_time=0.2 * slowdown,
        total=first + (tokens - 1) * 0.01 * slowdown,
    )


def load(gen: int, model: str = "a", seconds: float = 3.0) -> dict[str, Any]:
    return {"line": "load", "at": 0, "model": model, "gen": gen, "seconds": seconds, "reserved": {"GPU-x": GIB}}


def model(name: str, size: float) -> dict[str, Any]:
    return {"line": "model", "name": name, "file_size": round(size * GIB)}


def test_rates_of_a_model_alone() -> None:
    rates, _ = calibrate(parse_trace(lines(load(1), *(answer(at) for at in range(0, 50, 5)))))
    own = rates.of("a")
    assert own.token == pytest.approx(0.01)
    assert own.prefill == pytest.approx(500)
    assert own.overhead == pytest.approx(0.05)
    assert rates.load("a", 0) == pytest.approx(3)


def test_loads_by_size() -> None:
    trace = [model("a", 2), model("b", 8), load(1, "a", 3), load(2, "b", 6), load(3, "b", 6), asked()]
    rates, _ = calibrate(parse_trace(lines(*trace)))
    assert rates.load("a", 2 * GIB) == pytest.approx(3)
    assert rates.load("b", 8 * GIB) == pytest.approx(6)
    assert rates.load("unheard of", 4 * GIB) == pytest.approx(4)


def test_the_cost_of_calls_in_one_runner() -> None:
    """Pairs and single ones in turn; each of a pair takes 1.4 times as long."""
    pairs = [answer(at, slowdown=1.4) for at in range(0, 100, 10) for _ in range(2)]
    rates, _ = calibrate(parse_trace(lines(load(1), *pairs, *(answer(at) for at in range(5, 105, 10)))))
    assert rates.within == pytest.approx(0.4)
    assert rates.of("a").token == pytest.approx(0.01, rel=0.02)
    assert rates.of("a").prefill == pytest.approx(500, rel=0.05)


def test_the_cost_of_another_busy_runner_on_the_device() -> None:
    both = [answer(at, gen, slowdown=1.8, model=name) for at in range(0, 100, 10) for gen, name in ((1, "a"), (2, "b"))]
    alone = [answer(at) for at in range(5, 105, 10)]
    rates, notes = calibrate(parse_trace(lines(load(1), load(2, "b"), *both, *alone)))
    assert rates.beside == pytest.approx(0.8)
    assert any("in one runner" in note for note in notes)


def test_what_is_not_recorded_is_told() -> None:
    rates, notes = calibrate(parse_trace(lines(asked())))
    assert rates.of("a").token == rates.usual.token
    assert [note for note in notes if note.startswith("a:")]
    assert [note for note in notes if "no load" in note]


def test_the_table_of_a_recording() -> None:
    unload = {"line": "unload", "model": "a", "because": "its memory is needed for another model", "gen": 1, "at": 1}
    refused = asked(9, outcome="refused", error="QueueFullError")
    row, everything = recorded(parse_trace(lines(load(1), unload, answer(0), answer(5), refused)))
    assert row == everything.__class__(**{**everything.as_json(), "name": "a"})
    assert (row.requests, row.loads, row.evicted, row.refused) == (3, 1, 1, 1)
    assert row.first_p95 == pytest.approx(0.25)
    assert recorded(parse_trace(lines(asked()))) == []
