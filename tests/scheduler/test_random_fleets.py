"""Random workloads on the pure fleet, with all rules checked after every step.

A failing seed is run again with `python -m simulations.fleet replay N --verbose`.
"""

from __future__ import annotations

import pytest

from simulations.fleet.workloads import KINDS
from simulations.fleet.world import run
from trio_ollama.scheduler.core import fleet, shortcuts
from trio_ollama.scheduler.core.decisions import Decision
from trio_ollama.scheduler.core.plan import plan
from trio_ollama.scheduler.core.records import Waiter
from trio_ollama.scheduler.core.view import FleetView

SEEDS = 144
"""Nine of each kind."""


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[kind.replace(" ", "-") for kind in KINDS])
def test_all_rules_hold_after_every_step(kind: int) -> None:
    for seed in range(kind, SEEDS, len(KINDS)):
        world = run(seed)
        assert len(world.requests) == len(world.work.arrivals)


def test_I27_a_seed_gives_the_same_decisions_each_time() -> None:
    first: list[str] = []
    again: list[str] = []
    run(15, trace=first.append)
    run(15, trace=again.append)
    assert first == again
    assert len(first) > 100


def test_shortcuts_decide_what_a_pass_would(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def arrival(view: FleetView, q: Waiter) -> Decision | None:
        nonlocal taken
        decision = shortcuts.arrival(view, q)
        if decision is not None:
            assert plan(view) == (decision,)
            taken += 1
        return decision

    def departure_changes_nothing(view: FleetView, q: Waiter) -> bool:
        nonlocal taken
        nothing = shortcuts.departure_changes_nothing(view, q)
        if nothing:
            assert plan(view) == ()
            taken += 1
        return nothing

    monkeypatch.setattr(fleet, "arrival", arrival)
    monkeypatch.setattr(fleet, "departure_changes_nothing", departure_changes_nothing)
    for seed in range(32):
        run(seed)
    assert taken > 500
