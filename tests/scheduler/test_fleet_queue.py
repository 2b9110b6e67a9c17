"""Who waits, how many may, and what a request that leaves gives back in the same step."""

from __future__ import annotations

import pytest

from tests.support.fleet_builder import FleetBuilder, S
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.effects import Granted, Refused, SlotGranted, Spawn, Stop
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.plan import plan

TWO_GPUS = {"g0": 24, "g1": 24}


def slots_granted(fleet: FleetBuilder) -> list[int]:
    return [effect.seq for effect in fleet.effects() if isinstance(effect, SlotGranted)]


def refused(fleet: FleetBuilder) -> list[int]:
    return [effect.seq for effect in fleet.effects() if isinstance(effect, Refused)]


# -- slots --------------------------------------------------------------------------------------------------------


def test_R07_slots_are_given_in_order_and_a_leaver_takes_no_turn() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8)
    for seq in (1, 2, 3, 4):
        fleet.arrives(seq, "X", 8)
    assert slots_granted(fleet) == [1]
    fleet.leaves(2)
    assert list(x.slot_queue) == [3, 4]
    assert 2 not in x.leases
    fleet.releases(1)
    fleet.releases(3)
    assert slots_granted(fleet) == [3, 4]


def test_R08_a_slot_whose_call_was_cut_short_is_free_only_when_the_child_says_so() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8)
    fleet.arrives(1, "X", 8)
    fleet.arrives(2, "X", 8)
    slots_granted(fleet)
    fleet.releases(1, settled=False)
    assert slots_granted(fleet) == []
    assert x.free_slots == 0
    fleet.fleet.slot_settled(x.gen, fleet.now)
    assert slots_granted(fleet) == [2]


def test_R08_a_late_slot_does_not_hold_up_the_drain() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8)
    fleet.arrives(1, "X", 8)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.releases(1, settled=False)
    assert x.state is State.STOPPING


def test_R10_inputs_of_a_batch_queue_behind_other_requests_each_time() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 8)
    fleet.arrives(1, "X", 8, slot=False)
    fleet.arrives(2, "X", 8)
    fleet.effects()
    fleet.fleet.want_slot(1, fleet.now)
    fleet.arrives(3, "X", 8)
    fleet.releases(2)
    assert slots_granted(fleet) == [1]
    fleet.fleet.return_slot(1, fleet.now)
    fleet.fleet.want_slot(1, fleet.now)
    assert slots_granted(fleet) == [3]
    fleet.releases(3)
    assert slots_granted(fleet) == [1]


def test_R10_a_batch_that_leaves_while_it_waits_for_a_slot_leaves_nothing() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8, leases=1)
    fleet.arrives(1, "X", 8, slot=False)
    fleet.fleet.want_slot(1, fleet.now)
    fleet.leaves(1)
    assert (list(x.slot_queue), list(x.leases)) == ([], [-1])
    assert not fleet.fleet.want_slot(1, fleet.now)


def test_a_request_that_only_loads_needs_no_slot_and_no_place_in_the_queue() -> None:
    fleet = FleetBuilder(queue_bound=0)
    x = fleet.runner("X", 8, leases=1)
    fleet.arrives(1, "X", 8, slot=False)
    assert fleet.effects() == [Granted(1, x.gen)]


# -- the bound ----------------------------------------------------------------------------------------------------


def test_R54_a_burst_on_a_cold_model_gets_exactly_as_many_answers_as_the_bound_allows() -> None:
    fleet = FleetBuilder(queue_bound=512)
    for seq in range(1, 601):
        fleet.arrives(seq, "X", 8)
    assert refused(fleet) == list(range(513, 601))
    fleet.ready("X")
    for seq in range(1, 513):
        fleet.releases(seq)
    assert slots_granted(fleet) == list(range(1, 513))


def test_R54_a_burst_on_a_warm_runner_gets_its_slots_besides() -> None:
    fleet = FleetBuilder(queue_bound=512, num_parallel=4)
    fleet.runner("X", 8)
    for seq in range(1, 601):
        fleet.arrives(seq, "X", 8)
    assert len(refused(fleet)) == 88 - 4


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_R23_small_bounds_limit_the_queue_and_never_block(bound: int) -> None:
    fleet = FleetBuilder(queue_bound=bound)
    for seq in range(1, 6):
        fleet.arrives(seq, "X", 8)
    # The one whose load started is in, whatever the bound, but it counts.
    assert refused(fleet) == list(range(max(1, bound) + 1, 6))
    fleet.ready("X")
    for seq in range(1, max(1, bound) + 1):
        fleet.releases(seq)
    fleet.arrives(6, "X", 8)
    assert slots_granted(fleet)[-1] == 6


def test_R54_a_cancelled_waiter_frees_its_place_in_the_same_step() -> None:
    fleet = FleetBuilder(queue_bound=1)
    fleet.runner("X", 8, leases=1)
    fleet.arrives(1, "X", 8)
    fleet.arrives(2, "X", 8)
    assert refused(fleet) == [2]
    fleet.leaves(1)
    fleet.arrives(3, "X", 8)
    assert refused(fleet) == []


def test_R54_a_free_slot_is_never_refused() -> None:
    fleet = FleetBuilder(TWO_GPUS, queue_bound=0)
    fleet.runner("X", 14, leases=1)
    fleet.runner("Y", 4, on="g1")
    fleet.waits(1, "B", 24)
    fleet.arrives(2, "Y", 4)
    assert refused(fleet) == []


def test_I13_a_refused_request_changes_nothing_for_others() -> None:
    fleet = FleetBuilder(queue_bound=0)
    x = fleet.runner("X", 16, leases=1)
    fleet.arrives(1, "B", 12)
    assert refused(fleet) == [1]
    assert (x.claimed_by, x.state, fleet.fleet.waiters) == (None, State.READY, {})
    fleet.arrives(2, "c", 4)
    assert fleet.reasons() == {2: "loading"}


def test_I13_one_that_is_let_in_stays_in_though_the_queue_fills_up() -> None:
    """Its load started with its arrival; the next pass must not take it for a newcomer (planner, fault g)."""
    fleet = FleetBuilder(queue_bound=0)
    fleet.arrives(1, "X", 8)
    fleet.looks()
    assert (refused(fleet), fleet.reasons()) == ([], {1: "loading"})


def test_I13_a_head_start_is_kept_while_figures_are_being_measured() -> None:
    fleet = FleetBuilder(queue_bound=0)
    fleet.now = S
    fleet.arrives(1, "X", 8)
    assert fleet.reasons() == {1: "measuring"}
    fleet.looks()
    assert (refused(fleet), fleet.reasons()) == ([], {1: "loading"})
    fleet.looks()
    assert (refused(fleet), fleet.reasons()) == ([], {1: "loading"})


def test_I13_figures_that_leave_no_head_start_end_it() -> None:
    fleet = FleetBuilder(queue_bound=0)
    fleet.runner("X", 10, leases=1)
    fleet.reported(24)  # does not show X yet
    fleet.now = S
    fleet.arrives(1, "B", 11)
    assert fleet.reasons() == {1: "measuring"}
    fleet.reported(12)  # shows X, and a program of somebody else
    fleet.looks()
    assert refused(fleet) == [1]


# -- leaving ------------------------------------------------------------------------------------------------------


def test_R01_a_waiter_leaves_the_queue_in_the_step_in_which_its_client_goes() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 16, leases=1)
    fleet.arrives(1, "B", 12)
    fleet.arrives(2, "B", 12)
    for seq in (2, 1):
        fleet.leaves(seq)
        assert seq not in fleet.fleet.waiters
    assert fleet.fleet.queues == {}
    assert fleet.of("X").claimed_by is None
    fleet.releases(-1)
    assert [effect for effect in fleet.effects() if isinstance(effect, Spawn)] == []
    assert fleet.state("X") is State.READY


def test_R01_those_behind_a_waiter_that_leaves_go_on_in_its_place() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 16, leases=1)
    fleet.arrives(1, "B", 12)
    fleet.arrives(2, "B", 12)
    fleet.decided()
    fleet.leaves(1)
    assert fleet.decided() == ["Claim 2 {X}"]


def test_R02_what_is_stopping_already_goes_on_but_nothing_is_started_for_the_leaver() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 16)
    fleet.arrives(1, "B", 12)
    assert x.state is State.STOPPING
    fleet.leaves(1)
    fleet.exits(x)
    assert Spawn not in {type(effect) for effect in fleet.effects()}
    assert fleet.fleet.runners == {}


def test_R03_a_load_ends_with_its_only_requester_and_a_retry_joins_before_that() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    fleet.arrives(2, "X", 8)
    fleet.leaves(1)
    x = fleet.of("X")
    assert x.state is State.SPAWNING
    fleet.leaves(2)
    assert x.state is State.STOPPING
    assert Stop(x.gen) in fleet.effects()


def test_R04_a_shared_load_survives_those_who_leave() -> None:
    fleet = FleetBuilder()
    for seq in (1, 2, 3):
        fleet.arrives(seq, "X", 8)
    fleet.leaves(1)
    x = fleet.ready("X")
    assert list(x.leases) == [2, 3]
    assert [effect for effect in fleet.effects() if isinstance(effect, Spawn)] == [Spawn(x.gen)]


def test_R04_a_load_ends_with_the_last_who_wanted_it_though_that_one_stood_behind_other_options() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    fleet.arrives(2, "X", 8, ctx=8192)
    fleet.arrives(3, "X", 8)
    fleet.leaves(1)
    x = fleet.of("X")
    assert x.loading
    fleet.decided()
    fleet.leaves(3)
    assert fleet.decided()[0] == "Abort X"


def test_R04_the_heir_of_a_load_is_its_first_lease_and_overtakes_nobody() -> None:
    fleet = FleetBuilder(overtakes=0)
    fleet.arrives(1, "X", 12)
    fleet.arrives(2, "B", 15)
    fleet.arrives(3, "X", 12)
    fleet.leaves(1)
    fleet.decided()
    fleet.ready("X")
    assert fleet.decided() == ["Grant 3 first_of_load", "Claim 2 {X}"]


def test_R05_granted_and_cancelled_in_one_instant_leaves_an_idle_runner() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    x = fleet.ready("X")
    fleet.leaves(1)
    assert (x.leases, x.held_slots, len(fleet.fleet._leases)) == ({}, 0, 0)
    assert x.deadline is not None
    fleet.leaves(1)  # and once more
    fleet.releases(1)
    assert x.deadline is not None


def test_R05_cancelled_before_the_grant_gets_none() -> None:
    fleet = FleetBuilder(finish_abandoned_load=True)
    fleet.arrives(1, "X", 8)
    fleet.leaves(1)
    fleet.ready("X")
    assert Granted not in {type(effect) for effect in fleet.effects()}


def test_I23_a_place_goes_with_its_waiter() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 16, leases=1)
    fleet.arrives(1, "B", 18)
    fleet.arrives(2, "c", 4)
    assert fleet.reasons() == {1: "evicting_busy", 2: "behind"}
    fleet.decided()
    fleet.leaves(1)
    assert fleet.decided() == ["StartLoad 2 fits on g0"]


def test_R38_a_last_call_on_a_runner_claimed_while_idle_is_waited_for() -> None:
    """The claim moves to the idle runner, the last call makes that busy again (found by a random fleet)."""
    fleet = FleetBuilder(TWO_GPUS)
    fleet.runner("H", 14, leases=1)
    i = fleet.runner("I", 14, on="g1", leases=1)
    fleet.arrives(1, "B", 18)
    fleet.arrives(2, "C", 18)
    fleet.arrives(3, "I", 14)
    assert fleet.reasons() == {1: "evicting_busy", 2: "evicting_busy", 3: "runner_claimed"}
    fleet.decided()
    fleet.releases(-2)
    assert fleet.decided() == ["Claim 1 {I}", "Claim 2 {H}", "Grant 3 last_call"]
    assert fleet.reasons() == {1: "evicting_busy", 2: "evicting_busy"}
    assert plan(fleet.fleet) == ()
    fleet.releases(3)
    assert i.state is State.STOPPING


def test_I23_nobody_joins_a_runner_that_an_earlier_one_wants_while_its_figures_are_measured() -> None:
    """Found by a random fleet: the wait of the earlier one had no bound."""
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 14)
    fleet.arrives(2, "B", 14)
    fleet.arrives(3, "X", 14)
    fleet.now = S
    fleet.decided()
    fleet.ready("X")
    assert fleet.decided() == ["Grant 1 first_of_load", "Claim 2 {X}", "Grant 3 last_call, no slot"]
    assert fleet.reasons() == {2: "measuring"}
    fleet.arrives(4, "X", 14)
    assert fleet.reasons() == {2: "measuring", 4: "runner_claimed"}
