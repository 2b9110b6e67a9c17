"""`python -m simulations corpus`: what is known, and what became of it on both schedulers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from simulations.__main__ import main
from simulations.corpus import CASES, NOT_HERE, Known
from simulations.scenarios import Run
from simulations.verbs import corpus
from simulations.world.system import OURS
from tests.support.living_docs import DOCS, ROOT


def test_every_known_race_has_a_scenario_or_is_tested_elsewhere() -> None:
    listed = set(re.findall(r"^\| (R[0-9]{2}) \|", (DOCS / "races.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert len(listed) == 83
    assert {entry.partition("-")[0] for entry in CASES} | set(NOT_HERE) == listed


def test_what_is_tested_elsewhere_says_where() -> None:
    for entry, where in NOT_HERE.items():
        files = re.findall(r"tests/[\w/]+\.py", where)
        assert files, entry
        assert all((ROOT / file).is_file() for file in files), entry


def test_a_race_that_bites_is_told_of_with_both(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    assert main(["corpus", "R66", "R69", "--markdown", str(table)]) == 0
    told = capsys.readouterr().out
    assert "R66    on the CPU, models are loaded until the RAM is exhausted  [S003 processPending, S000 load]" in told
    assert "control: fails at 0: from 5 on, 20 GiB of cpu are needed at once" in told
    assert told.count("ours: passes 10") == 2  # R66-b, too
    assert "R69    elsewhere: " in told
    assert "2 scenarios, 2 of them fail on the control; 0 are not as they should be" in told
    lines = table.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Known races, played"
    lines = lines[lines.index("| race | what goes wrong | known from | control | ours |") :]
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| R66", "| R66-b"]
    assert lines[-1].startswith("| R69 | ")


def test_one_of_the_two_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "R66-b", "--only", "ours"]) == 0
    told = capsys.readouterr().out
    assert "ours: passes 10" in told
    assert "control:" not in told


def test_a_race_that_does_not_bite_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tame = replace(CASES["R63"], known=(Known.CODE,), control_passes="")
    monkeypatch.setitem(CASES, "R63", tame)
    assert main(["corpus", "R63", "--only", "control"]) == 1
    assert "R63: the control passes, and its code is known to be wrong" in capsys.readouterr().out
    monkeypatch.setitem(CASES, "R63", replace(tame, control_passes="it does what is right"))
    assert main(["corpus", "R63", "--only", "control"]) == 0
    assert "control: passes: it does what is right" in capsys.readouterr().out


def test_ours_must_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def never(run: Run) -> Iterator[str]:
        yield "nothing is ever good enough"

    case = replace(CASES["R66-b"], requires=never, control_passes="it does not")
    monkeypatch.setitem(CASES, "R66-b", case)
    assert main(["corpus", "R66-b"]) == 1
    told = capsys.readouterr().out
    assert "R66-b: ours fails at 0: nothing is ever good enough" in told
    assert "although it is said to pass: it does not" in told


def test_a_judgement_that_breaks_down_is_a_failure() -> None:
    case = replace(CASES["R66"], requires=lambda run: iter([str(run.clients[99])]))
    assert corpus.verdict(case, OURS).reason == "IndexError('list index out of range')"


def test_unknown_names_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "nothing"]) == 2
    assert "no known race is called nothing" in capsys.readouterr().err
