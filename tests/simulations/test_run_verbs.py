"""`python -m simulations run`, `replay`, `check-determinism`: what they print, and what they return."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from simulations.__main__ import main
from simulations.explore.many import play_all, texts
from simulations.scenarios.goals import Goal
from simulations.scenarios.seeds import Spot, UnknownSpotError, find
from simulations.world import invariants, rules
from simulations.world.world import World
from trio_ollama.scheduler.core.lifecycle import TRANSITIONS

HASH = re.compile("[0-9a-f]{64}")

Output = pytest.CaptureFixture[str]


def figures(text: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\S.*?)\s{2,}(\S.*)$", text, re.MULTILINE))


def break_a_rule(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """From now on it is wrong to have loaded a model of that name."""
    violations = invariants.violations

    def stricter(scheduler: object, factory: object) -> Iterator[str]:
        yield from violations(scheduler, factory)  # type: ignore[arg-type]
        if any(process.spec.model == model for process in factory.alive):  # type: ignore[attr-defined]
            yield f"made up: {model} is there"

    monkeypatch.setattr(rules, "violations", stricter)


@pytest.mark.parametrize("text", ["17", "17:3", "17:3:pct", "17:0:pct"])
def test_the_text_of_a_run_is_how_it_is_found(text: str) -> None:
    assert find(text).text == text


def test_the_usual_interleaving_and_order_need_not_be_told() -> None:
    assert find("17:0:shuffle").text == "17"


@pytest.mark.parametrize("text", ["", "x", "17:a", "17:1:none", "17:1:pct:2", "-1", "R0"])
def test_a_text_that_names_no_run_is_refused(text: str) -> None:
    with pytest.raises(UnknownSpotError):
        find(text)


def test_a_known_race_is_found_by_its_entry() -> None:
    assert find("R05:2").scenario == find("R05").scenario


def test_interleavings_differ_and_repeat() -> None:
    digests = [find(text).play().digest for text in ("5", "5:1", "5:1:pct", "5", "5:1", "5:1:pct")]
    assert digests[:3] == digests[3:]
    assert len(set(digests)) == 3


def test_run_sums_up_what_the_runs_did(capsys: Output) -> None:
    assert main(["run", "--seeds", "0", "24"]) == 0
    out = capsys.readouterr().out
    table = figures(out)
    assert (table["runs"], table["failing runs"], table["requests"]) == ("24", "0", "480")
    for name in ("loads", "evictions", "cancels", "crashes", "steps of tasks", "faults injected"):
        assert int(table[name].replace(",", "")) > 0, name
    assert float(table["runs/s/core"]) > 0
    pairs, _, of_pairs = table["(state, event) pairs"].split()
    assert int(pairs) + out.count("    never: ") == int(of_pairs) == len(TRANSITIONS)
    goals, _, of_goals = table["goals"].split()
    assert int(goals) + out.count("      never  ") == int(of_goals) == len(Goal)
    assert int(goals) > 30


def test_run_plays_what_it_is_asked_for(capsys: Output) -> None:
    asked = ["--seeds", "0", "48", "--kind", "ping-pong", "--schedules", "2", "--order", "both", "--hashes"]
    assert main(["run", *asked]) == 0
    played = [line.split()[0] for line in capsys.readouterr().out.splitlines() if HASH.search(line)]
    assert played == ["1", "1:0:pct", "1:1", "1:1:pct", "25", "25:0:pct", "25:1", "25:1:pct"]


def test_run_stops_when_time_is_over(capsys: Output) -> None:
    assert main(["run", "--long", "--limit-seconds", "0"]) == 0
    out, err = capsys.readouterr()
    assert figures(out)["runs"] == "1"
    assert "1 runs" in err


def test_missed_goals_are_a_failure_only_if_asked(capsys: Output) -> None:
    assert main(["run", "--seeds", "0", "1"]) == 0
    assert main(["run", "--seeds", "0", "1", "--goals"]) == 1
    assert "      never  " in capsys.readouterr().out


def test_a_failing_run_is_named_with_the_command_that_plays_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    break_a_rule(monkeypatch, "hot")
    assert main(["run", "--seeds", "0", "3", "--schedules", "2"]) == 1
    out = capsys.readouterr().out
    assert figures(out)["failing runs"] == "2"
    assert "FAILED 0 (hot and big 0): made up: hot is there\n" in out
    commands = re.findall(r"^    python -m simulations (.*)$", out, re.MULTILINE)
    assert commands == ["replay 0", "replay 0:1"]
    assert main(commands[1].split()) == 1
    *_, broken, digest = capsys.readouterr().out.splitlines()
    assert broken == "BROKEN made up: hot is there"
    assert HASH.fullmatch(digest)


def test_what_a_run_raises_is_a_failure_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(self: Spot) -> None:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr(Spot, "play", explode)
    assert [result.broken for result in play_all(["3"])] == [("ZeroDivisionError: made up",)]


def test_several_processes_give_the_same_results_in_order() -> None:
    spots = list(texts((0, 6)))
    alone, together = (list(play_all(spots, jobs=jobs, hashed=True)) for jobs in (1, 2))
    assert [(one.spot, one.digest, one.counts) for one in alone] == [
        (one.spot, one.digest, one.counts) for one in together
    ]


def test_replay_prints_the_hash_that_run_found_last(capsys: Output) -> None:
    main(["run", "--seeds", "6", "7", "--hashes"])
    found = capsys.readouterr().out.splitlines()[0].split()[1]
    printed = []
    for more in ([], ["--verbose"]):
        assert main(["replay", "6", *more]) == 0
        printed.append(capsys.readouterr().out.splitlines())
    assert [lines[-1] for lines in printed] == [found] * 2
    events, everything = printed
    assert any(" loading " in line for line in events)
    assert not any("StartLoad " in line or "step of" in line for line in events)
    assert any("StartLoad " in line for line in everything)
    assert any("step of client 3" in line for line in everything)
    assert [line for line in everything if line in set(events)] == events
    times = [float(line.split()[0]) for line in everything[:-1]]
    assert times == sorted(times)


def test_replay_stops_when_it_is_told_to(capsys: Output) -> None:
    main(["replay", "6"])
    whole = capsys.readouterr().out.splitlines()
    main(["replay", "6", "--until", "3"])
    part = capsys.readouterr().out.splitlines()
    assert part[:-1] == [line for line in whole[:-1] if float(line.split()[0]) <= 3]
    assert 3 < len(part) < len(whole)
    assert part[-1] != whole[-1]


def test_the_same_trace_here_and_in_another_process(capsys: Output) -> None:
    assert main(["check-determinism", "--seeds", "22", "24", "--order", "both"]) == 0
    assert "4 runs: the same trace" in capsys.readouterr().out


def test_a_trace_that_differs_from_time_to_time_is_found(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    calls, note = count(), World.note
    monkeypatch.setattr(
        World, "note", lambda self, text: note(self, f"{text} {next(calls)}" if "starts" in text else text)
    )
    assert main(["check-determinism", "--seeds", "0", "5"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^0 diverges at line \d+ of its trace", out)
    assert "in this process again:" in out


def test_a_trace_that_differs_between_processes_is_found(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    note = World.note
    monkeypatch.setattr(World, "note", lambda self, text: note(self, text.replace("starts", "begins")))
    assert main(["check-determinism", "--seeds", "0", "5"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"in this process:\n .* begins: .*\nin a process with other hashes:\n .* starts: ", out)


def test_the_package_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulations", "replay", "3", "--until", "1"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert HASH.fullmatch(done.stdout.splitlines()[-1])
