"""`python -m simulations.fleet VERB`: what each verb prints, and what it returns."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from simulations.fleet import world as fleet_world
from simulations.fleet.__main__ import main
from simulations.fleet.decisions import Violation
from simulations.fleet.invariants import Checks
from trio_ollama.scheduler.core.decisions import Decision
from trio_ollama.scheduler.core.lifecycle import TRANSITIONS

HASH = re.compile("[0-9a-f]{64}")
Output = pytest.CaptureFixture[str]


def figures(text: str) -> dict[str, str]:
    """The rows of a summary."""
    found = re.findall(r"^  (\S.*?)\s{2,}(\S.*)$", text, re.MULTILINE)
    return {name: value for name, value in found}


def break_in(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A rule that does not hold in workloads of one kind after a second."""
    after_step = Checks.after_step

    def broken(self: Checks) -> None:
        after_step(self)
        if self.world.work.kind == kind and self.world.now > 10**9:
            raise Violation("made up", "it never held")

    monkeypatch.setattr(Checks, "after_step", broken)


def lines_that(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    line = fleet_world.line

    def other(decision: Decision) -> str:
        return change(line(decision))

    monkeypatch.setattr(fleet_world, "line", other)


@pytest.mark.parametrize("verb", ["run", "replay", "check-determinism"])
def test_every_verb_has_help(verb: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    assert f"simulations.fleet {verb}" in capsys.readouterr().out


def test_run_sums_up_what_the_seeds_did(capsys: Output) -> None:
    assert main(["run", "--seeds", "0", "16"]) == 0
    out, err = capsys.readouterr()
    table = figures(out)
    assert table["seeds"] == "16"
    assert table["failing seeds"] == "0"
    assert float(table["seeds/s"]) > 0
    assert re.fullmatch(r"\d+ h \d\d min \d\d s", table["simulated time"])
    for name in ("requests", "loads", "evictions", "cancels", "crashes", "steps checked"):
        assert int(table[name].replace(",", "")) > 0, name
    reached, of, total = table["(state, event) pairs"].split()
    assert (of, int(total)) == ("of", len(TRANSITIONS))
    assert int(reached) + out.count("never: ") == len(TRANSITIONS)
    assert int(reached) >= 8
    assert "16/16 seeds" in err


def test_run_takes_one_kind_or_a_limit_of_time(capsys: Output) -> None:
    assert main(["run", "--seeds", "0", "32", "--kind", "cpu-only", "--hashes"]) == 0
    assert re.findall(r"^seed (\d+) ", capsys.readouterr().out, re.MULTILINE) == ["10", "26"]
    assert main(["run", "--seeds", "0", "1000000", "--limit-seconds", "0"]) == 0
    assert figures(capsys.readouterr().out)["seeds"] == "1"


def test_a_failing_seed_is_named_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    break_in(monkeypatch, "ping-pong")
    assert main(["run", "--seeds", "0", "3"]) == 1
    out = capsys.readouterr().out
    assert figures(out)["failing seeds"] == "1"
    assert re.search(r"^FAILED seed 1 \(ping-pong\) at \d+\.\d+ s: made up: it never held$", out, re.MULTILINE)
    command = re.findall(r"^    (python -m simulations.fleet .*)$", out, re.MULTILINE)
    assert command == ["python -m simulations.fleet replay 1"]
    assert main(command[0].split()[3:]) == 1
    *_, broken, digest = capsys.readouterr().out.splitlines()
    assert "made up: it never held" in broken
    assert HASH.fullmatch(digest)


def test_replay_prints_the_hash_that_run_found_last(capsys: Output) -> None:
    main(["run", "--seeds", "6", "7", "--hashes"])
    found = re.findall(r"^seed 6 (\w+)$", capsys.readouterr().out, re.MULTILINE)
    printed = []
    for more in ([], ["--verbose"]):
        assert main(["replay", "6", *more]) == 0
        printed.append(capsys.readouterr().out.splitlines())
    assert [lines[-1] for lines in printed] == found * 2
    events, everything = printed
    assert any(" loading " in line for line in events)
    assert not any("StartLoad " in line for line in events)
    assert any("StartLoad " in line for line in everything)
    assert set(events) < set(everything)


def test_replay_stops_when_it_is_told_to(capsys: Output) -> None:
    main(["replay", "6"])
    whole = capsys.readouterr().out.splitlines()
    main(["replay", "6", "--until", "3"])
    part = capsys.readouterr().out.splitlines()
    assert part[:-1] == [line for line in whole[:-1] if float(line.split()[0]) <= 3]
    assert 3 < len(part) < len(whole)
    assert part[-1] != whole[-1]


def test_the_same_trace_here_and_in_another_process(capsys: Output) -> None:
    assert main(["check-determinism", "--seeds", "14", "17"]) == 0
    assert "3 seeds: the same trace" in capsys.readouterr().out


def test_a_trace_that_differs_from_time_to_time_is_found(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    calls = count()
    lines_that(monkeypatch, lambda text: f"{text} {next(calls)}" if text.startswith("StartLoad") else text)
    assert main(["check-determinism", "--seeds", "0", "5"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^seed 0 diverges at line \d+ of its trace", out)
    assert "in this process again:" in out
    assert out.count("StartLoad") >= 2


def test_a_trace_that_differs_between_processes_is_found(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    lines_that(monkeypatch, lambda text: text.replace("StartLoad", "Start Load"))
    assert main(["check-determinism", "--seeds", "0", "5"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("seed 0 diverges")
    assert re.search(r"in this process:\n .* Start Load .*\nin a process with other hashes:\n .* StartLoad ", out)


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-m", "simulations.fleet", "replay", "3", "--until", "1"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    assert HASH.fullmatch(done.stdout.splitlines()[-1])
