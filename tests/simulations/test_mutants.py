"""The faults fit the sources that they are planted in, and are noticed; without one there is nothing to notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulations.__main__ import main
from simulations.mutants.aimed import AIMED, Aimed
from simulations.mutants.catalogue import MUTANTS
from simulations.mutants.detect import hunt
from simulations.mutants.mutant import Mutant, UnfitMutantError
from simulations.mutants.plant import plant
from simulations.verbs.mutants import sample

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_every_fault_fits(mutant: Mutant) -> None:
    """Its text is there exactly once, and what comes of it is Python that differs from before."""
    assert mutant.module.startswith("trio_ollama.scheduler.")
    assert mutant.mistake
    original = compile(mutant.path.read_text(encoding="utf-8"), mutant.name, "exec")
    assert compile(mutant.source(), mutant.name, "exec") != original


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 48
    assert sum(not mutant.survives for mutant in MUTANTS.values()) >= 0.95 * len(MUTANTS)


def test_a_fault_that_does_not_fit_is_told() -> None:
    mutant = Mutant(name="odd", module="trio_ollama.scheduler.lease", old="no such text", new="", mistake="")
    with pytest.raises(UnfitMutantError, match="0 times"):
        mutant.source()


def test_a_fault_is_not_planted_too_late() -> None:
    with pytest.raises(RuntimeError, match="imported already"):
        plant(MUTANTS["lost-wake-up"])


def test_nothing_is_noticed_without_a_fault() -> None:
    assert hunt(3) is None


@pytest.mark.parametrize("aimed", AIMED, ids=lambda aimed: aimed.name)
def test_what_mutants_have_taught_us(aimed: Aimed) -> None:
    assert [aimed.problems(schedule) for schedule in range(5)] == [[]] * 5


def test_the_sample_is_spread_and_always_the_same() -> None:
    chosen = list(sample(list(MUTANTS.values()), 8))
    assert len(chosen) == 8
    assert chosen == list(sample(list(MUTANTS.values()), 8))
    assert len({mutant.module for mutant in chosen}) >= 4
    assert not any(mutant.survives for mutant in chosen)


def test_the_verb_plants_faults_and_says_what_gave_them_away() -> None:
    """Each in a process of its own: none of them is in this one."""
    names = ("lost-wake-up", "forgetful-acquire", "claims-ignored")
    line = [sys.executable, "-m", "simulations", "mutants", *names]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in names:
        assert any(line.startswith(name) and " s  " in line for line in done.stdout.splitlines())
    assert "3 of 3 caught" in done.stdout


def test_a_survivor_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """In no time nothing but the very first run can tell."""
    assert main(["mutants", "back-off-for-ever", "--seconds", "0"]) == 1
    assert "back-off-for-ever survives: UNEXPECTED" in capsys.readouterr().out


def test_there_is_a_list_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "no-such-fault"]) == 2
    assert main(["mutants", "--sample", "2", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
