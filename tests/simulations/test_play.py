"""Scenarios that showed a fault, in the scheduler or in the world, and are kept; and what a played run tells."""

from __future__ import annotations

from simulations.scenarios import Fault, Request, Scenario, What, play
from simulations.scenarios.seeds import find
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from simulations.world.world import World
from trio_ollama.scheduler import Policy


def test_keep_alive_ends_although_somebody_has_a_claim_that_waits_for_figures() -> None:
    """I15: the claim is on old figures, and the look at the GPUs takes longer than the keep-alive lasts."""
    run = play(
        Scenario(
            policy=Policy(max_models=1),
            requests=(Request(model="a", keep_alive=0.5), Request(model="b", at=0.1)),
            faults=(Fault(at=1, what=What.QUERY_TIME, amount=10), Fault(at=6, what=What.QUERY_TIME, amount=0)),
        )
    )
    assert run.broken == []
    assert [client.outcome for client in run.clients] == [Outcome.ANSWERED] * 2
    assert any("a (generation 1) goes: keep-alive is over" in line for line in run.trace)


def test_who_stopped_an_idle_runner_may_wait_for_a_load_although_the_queue_is_full() -> None:
    """I13: a head start, with a queue bound of 1; found as workload 346."""
    assert find("346").play().broken == []


def test_a_process_that_ignored_every_signal_ends_like_others_once_all_is_well() -> None:
    unkillable = Behaviour(term_time=None, kill_time=None)
    for keep_alive in (0.0, -1.0):
        run = play(Scenario(launches={"a": (unkillable,)}, requests=(Request(keep_alive=keep_alive),)))
        assert run.broken == []
        assert [process.exited is not None for process in run.processes] == [True]


def test_a_process_nobody_watches_any_more_ends_once_all_is_well() -> None:
    """The server has ended under an unkillable process, which outlives it until the system lets it die."""
    unkillable = Behaviour(term_time=None, kill_time=None)
    faults = (Fault(at=3, what=What.END), Fault(at=20, what=What.LAG, amount=0))
    run = play(Scenario(launches={"a": (unkillable,)}, requests=(Request(keep_alive=-1),), faults=faults))
    assert run.broken == []
    assert [process.ended_at for process in run.processes] == [20]


def test_a_process_that_outlives_the_server_is_no_leftover_of_it() -> None:
    """Found as workload 526: nothing stays for ever there, so that leftovers are looked for."""
    unkillable = Behaviour(term_time=None, kill_time=None)
    faults = (Fault(at=3, what=What.END), Fault(at=20, what=What.LAG, amount=0))
    run = play(Scenario(launches={"a": (unkillable,)}, requests=(Request(),), faults=faults))
    assert run.broken == []


def test_leftovers_are_looked_for_after_the_end_where_a_runner_stays_for_ever() -> None:
    """I24: with a keep-alive that never ends, only the end of the server can show what is left."""

    def keep_memory(world: World) -> None:
        world.hardware.take("GPU-0", 1)

    run = play(Scenario(requests=(Request(keep_alive=-1),)), interfere=keep_memory)
    assert run.broken == ["I24: memory {'GPU-0': 1} left after the end"]


def test_a_process_that_ends_when_it_was_to_take_its_memory_takes_none() -> None:
    """Found as workload 9160: stopped so that it ends in the very instant in which half of its load is over."""
    scenario = Scenario(requests=(Request(leaves=0.95),), usual=Behaviour(load_time=2.0, term_time=0.05))
    for schedule in range(6):
        run = play(scenario, schedule=schedule)
        assert run.broken == []
        assert [process.ended_at for process in run.processes] == [1.0]
