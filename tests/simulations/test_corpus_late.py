"""Known races R62-R83: the scheduler does what each entry requires, in every interleaving that is played."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Final

import pytest

from simulations.control import GO
from simulations.corpus import Case, clients, placement, process_faults, shutdown
from simulations.scenarios import Request, Scenario, play
from simulations.verbs.corpus import has_to_fail, verdict
from simulations.world.system import OURS

MODULES: Final = (placement, shutdown, clients, process_faults)
EVERY: Final = tuple(chain.from_iterable(module.CASES for module in MODULES))


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.entry)
def test_required(case: Case) -> None:
    ours = verdict(case, OURS)
    assert ours.passes, str(ours)


@pytest.mark.parametrize("case", [case for case in EVERY if has_to_fail(case)], ids=lambda case: case.entry)
def test_what_is_known_of_the_go_code_bites(case: Case) -> None:
    assert verdict(case, GO).passes is bool(case.control_passes)


def test_every_entry_has_a_case_or_is_tested_elsewhere() -> None:
    known = {case.entry.partition("-")[0] for case in EVERY}.union(*(module.NOT_HERE for module in MODULES))
    assert known == {f"R{number:02}" for number in range(62, 84)}


def test_memory_that_is_needed_twice_is_seen() -> None:
    run = play(Scenario(models={"a": 10, "b": 10}, requests=(Request(), Request(model="b", at=5))))
    assert not list(placement.within(run, "GPU-0", 20))
    (problem,) = placement.within(run, "GPU-0", 19)
    assert problem.startswith("from 5 on, 20 GiB of GPU-0 are needed at once")
    assert not list(placement.on_devices(run, "a", "GPU-0"))
    assert list(placement.on_devices(run, "a", "GPU-1"))


def test_a_server_that_does_not_end_is_seen() -> None:
    case = shutdown.R67
    run = play(case.scenario)
    assert not list(shutdown.over(run))
    (first, *_) = run.processes
    first.ended_at = 100.0
    assert list(shutdown.over(run)) == ["process 1000 ended at 100.0; the server, at 5.3"]
    run = play(replace(case.scenario, faults=()))
    assert list(shutdown.over(run)) == ["the server was not told to end"]
