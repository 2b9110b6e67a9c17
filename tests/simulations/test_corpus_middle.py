"""Known races R31 to R61: each scenario in all its interleavings, on the real scheduler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from simulations.corpus import Case, eviction, fairness, memory_errors, recovery, reload, victims
from simulations.scenarios import play

MODULES: Final = (recovery, eviction, victims, memory_errors, fairness, reload)
CASES: Final = [case for module in MODULES for case in module.CASES]
NOT_HERE: Final = {entry: where for module in MODULES for entry, where in module.NOT_HERE.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.entry)
def test_what_the_entry_requires(case: Case) -> None:
    for schedule in case.schedules:
        assert not case.judge(play(case.scenario, schedule=schedule)), f"{case.entry}:{schedule}"


def test_each_entry_is_a_case_or_is_tested_elsewhere() -> None:
    cases = {case.entry.partition("-")[0] for case in CASES}
    assert not cases & NOT_HERE.keys()
    assert sorted(cases | NOT_HERE.keys()) == [f"R{number}" for number in range(31, 62)]
    for entry, where in NOT_HERE.items():
        files = re.findall(r"tests/[\w/]+\.py", where)
        assert files, f"{entry} does not say where"
        for file in files:
            assert entry in (Path(__file__).parents[2] / file).read_text(encoding="utf-8")
