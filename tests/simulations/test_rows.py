"""Rows of the lifecycle table that are hard to come to, and those that nobody can come to."""

from __future__ import annotations

from simulations.scenarios import Fault, Request, Scenario, What, play
from simulations.scenarios.report import UNREACHABLE
from simulations.scenarios.seeds import find
from simulations.scenarios.workloads import KINDS
from trio_ollama.scheduler.core.lifecycle import TRANSITIONS, Event, State


def test_a_load_is_ended_by_force_before_its_process_is_there() -> None:
    """Whoever waits for it is told, no process is started for it, and a later request gets its load (I04, R68)."""
    scenario = Scenario(
        requests=(Request(at=0), Request(model="b", at=0), Request(at=10)),
        faults=(Fault(at=0, what=What.FORCE, target="a"), Fault(at=0, what=What.FORCE, target="a")),
    )
    unspawned = 0
    for schedule in range(40):
        run = play(scenario, schedule=schedule)
        assert not run.broken, "\n".join([*run.broken, *run.trace])
        first, other, later = run.clients
        assert (other.outcome, later.outcome) == ("answered", "answered")
        if run.reached[State.SPAWNING, Event.KILL]:
            unspawned += 1
            assert "the model was stopped" in str(first.error)
            assert run.launches("a") == 1
    assert unspawned


def test_nothing_comes_to_the_other_rows() -> None:
    reached = {row for seed in range(len(KINDS)) for row in find(f"{seed}:1").play().reached}
    assert len(reached) > 12
    assert not reached & UNREACHABLE.keys()
    assert UNREACHABLE.keys() < TRANSITIONS.keys()
