"""`python -m simulations sweep`: what it plays, what it finds, and how to have it again."""

from __future__ import annotations

import re

import pytest

from simulations.__main__ import main
from trio_ollama.scheduler.core.fleet import Fleet


def runs(told: str) -> int:
    found = re.search(r"^\S+: ([0-9]+) runs, 0 failures, [0-9]+ runs/s$", told, re.MULTILINE)
    assert found is not None, told
    return int(found[1])


def test_all_of_it_and_parts_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    def played(*arguments: str) -> int:
        assert main(["sweep", "R63", *arguments]) == 0
        return runs(capsys.readouterr().out)

    modes = [played("--mode", mode) for mode in ("blocked", "racing", "between")]
    assert all(modes)
    assert played() == played("--client", "1") == sum(modes)
    assert played("--sample", "7") == 7
    assert played("--shutdown", "--sample", "9") == 9
    assert played("--both", "6") == 6
    assert played("--pairs", "6") == 0  # there is only one client
    assert played("--both", "4", "--client", "1", "--mode", "racing") == 4 + modes[1]


def test_of_several_scenarios_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "3:2", "R40", "--pairs", "3"]) == 0
    told = capsys.readouterr().out
    assert re.findall(r"^(\S+): 3 runs, 0 failures", told, re.MULTILINE) == ["3:2", "R40"]


def test_a_failure_is_told_and_can_be_had_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave = Fleet.leave
    monkeypatch.setattr(Fleet, "leave", lambda self, seq, now: leave(self, seq, now) if seq in self.waiters else None)
    assert main(["sweep", "R63", "--mode", "between", "--most", "1"]) == 1
    found = re.search(r"^python -m simulations (sweep R63 --at \S+): (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert found is not None
    assert main(found[1].split()) == 1
    again = capsys.readouterr().out
    assert "now: 1:between:" in again
    assert all(problem in again for problem in found[2].split("; "))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["R999"], "R999"),
        (["R63", "--client", "2"], "R63 has clients 1 to 1, not 2"),
        (["R63", "--at", "7:racing:1"], "R63 has clients 1 to 1, not 7"),
        (["R63", "--at", "1:never:1"], "'1:never:1' is no moment"),
    ],
)
def test_what_is_not_there_is_told(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *arguments]) == 2
    assert text in capsys.readouterr().err
