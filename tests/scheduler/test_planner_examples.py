"""The worked examples of the planner, by number. GiB; GPUs of 24, so three runners each at most; one slot per runner.

A request needs size / 0.8 free bytes on a GPU. `runners` come first, then who waits, then what happens.
"""

from __future__ import annotations

from tests.support.fleet_builder import MS, FleetBuilder
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.records import OomRetry

TWO_GPUS = {"g0": 24, "g1": 24}


def test_01_a_busy_runner_is_leased_at_once_and_its_slot_waited_for() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8, leases=1)
    fleet.arrives(1, "X", 8)
    assert fleet.first_pass() == ["Grant 1 ready, no slot"]
    assert list(x.slot_queue) == [1]


def test_02_one_load_for_all_who_want_its_options_and_a_queue_behind_the_other_options() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "A", 8)
    fleet.arrives(2, "A", 8)
    fleet.arrives(3, "A", 8, ctx=8192)
    fleet.arrives(4, "A", 8)
    assert fleet.decided() == ["StartLoad 1 fits on g0"]
    assert fleet.reasons() == {
        1: "loading",
        2: "loading",
        3: "other_config_loading",
        4: "behind_own_model",
    }
    fleet.ready("A")
    assert fleet.decided() == [
        "Grant 1 first_of_load",
        "Grant 2 ready, no slot",
        "Claim 3 {A}",
        "Grant 4 last_call, no slot",
    ]
    assert fleet.reasons() == {3: "evicting_busy"}


def busy_x_and_a_big_rival(*, with_q6: bool = False) -> FleetBuilder:
    fleet = FleetBuilder()
    fleet.runner("X", 10, leases=2)
    fleet.arrives(5, "B", 12)
    assert fleet.first_pass() == ["Claim 5 {X}", "Wait 5 evicting_busy"]
    if with_q6:
        fleet.arrives(6, "X", 10)
        assert fleet.first_pass() == ["Wait 6 runner_claimed"]
    fleet.decided()
    return fleet


def test_03_small_loads_start_beside_the_place_of_a_big_one() -> None:
    fleet = busy_x_and_a_big_rival()
    fleet.arrives(7, "c", 2)
    fleet.arrives(8, "d", 4)
    assert fleet.decided() == ["StartLoad 7 fits on g0"]
    assert fleet.reasons() == {5: "evicting_busy", 7: "loading", 8: "device_loading"}


def test_03_variant_a_request_for_the_claimed_runner_keeps_a_place_too() -> None:
    fleet = busy_x_and_a_big_rival(with_q6=True)
    fleet.arrives(7, "c", 2)
    fleet.arrives(8, "d", 4)
    assert fleet.decided() == []
    assert fleet.reasons() == {5: "evicting_busy", 6: "runner_claimed", 7: "behind", 8: "behind"}


def test_04_a_claim_goes_with_its_waiter_in_the_same_step() -> None:
    fleet = busy_x_and_a_big_rival(with_q6=True)
    fleet.fleet.leave(5, fleet.now)
    assert fleet.first_pass() == ["Grant 6 ready, no slot"]
    assert fleet.of("X").claimed_by is None


def test_05_a_claimed_runner_is_stopped_in_the_step_of_its_last_release() -> None:
    fleet = busy_x_and_a_big_rival(with_q6=True)
    x = fleet.of("X")
    fleet.fleet.release(-1, fleet.now)
    fleet.fleet.release(-2, fleet.now)
    assert fleet.first_pass() == ["Wait 5 evicting_idle", "Drain X evicted_for 5"]
    assert x.state is State.STOPPING


def test_06_at_most_four_later_requests_join_by_last_call() -> None:
    fleet = FleetBuilder()
    b = fleet.runner("B", 13, served=0)
    b.armed, b.deadline = False, None
    for seq in range(2, 13):
        fleet.waits(seq, *("B", 13) if seq == 2 or seq % 2 == 0 else ("A", 12))
    fleet.looks()
    assert fleet.first_pass() == [
        "Grant 2 first_of_load",
        "Claim 3 {B}",
        "Wait 3 evicting_busy",
        "Grant 4 last_call, no slot",
        "Wait 5 behind_own_model",
        "Grant 6 last_call, no slot",
        "Wait 7 behind_own_model",
        "Grant 8 last_call, no slot",
        "Wait 9 behind_own_model",
        "Grant 10 last_call, no slot",
        "Wait 11 behind_own_model",
        "Wait 12 runner_claimed",
    ]


def test_07_other_options_wait_for_the_leases_then_reload_after_the_exit() -> None:
    fleet = FleetBuilder()
    m = fleet.runner("m", 6, ctx=2048, leases=1)
    fleet.arrives(4, "m", 6, ctx=8192)
    assert fleet.first_pass() == ["Claim 4 {m}", "Wait 4 evicting_busy"]
    fleet.arrives(5, "m", 6, ctx=2048)
    assert fleet.first_pass() == ["Wait 5 behind_own_model"]
    fleet.fleet.release(-1, fleet.now)
    assert fleet.decided() == ["Drain m reload_for 4"]
    fleet.exits(m)
    assert fleet.decided() == ["StartLoad 4 fits on g0"]


def test_08_only_those_needed_go() -> None:
    fleet = FleetBuilder()
    fleet.runner("s1", 2, keep=5 * MS)
    fleet.runner("s2", 2, keep=6 * MS)
    fleet.runner("L", 14)
    fleet.arrives(4, "B", 15)
    assert fleet.first_pass() == ["Claim 4 {L}", "Wait 4 evicting_idle", "Drain L evicted_for 4"]


def test_09_an_idle_set_replaces_a_claim_on_a_busy_runner() -> None:
    fleet = FleetBuilder(TWO_GPUS)
    x = fleet.runner("X", 14, leases=1)
    fleet.runner("Y", 14, on="g1")
    fleet.waits(4, "B", 16, claim=[x])
    fleet.waits(5, "X", 14)
    fleet.looks()
    assert fleet.first_pass() == [
        "Claim 4 {Y}",
        "Wait 4 evicting_idle",
        "Grant 5 ready, no slot",
        "Drain Y evicted_for 4",
    ]


def test_10_a_request_for_a_draining_model_keeps_a_place_and_lets_small_ones_by() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 8, leases=1, state=State.DRAINING)
    fleet.waits(2, "X", 8)
    fleet.waits(3, "c", 4)
    fleet.waits(4, "e", 12)
    fleet.looks()
    assert fleet.first_pass() == [
        "Wait 2 predecessor_draining",
        "StartLoad 3 fits on g0",
        "Wait 3 loading",
        "Wait 4 behind",
    ]


def test_11_of_two_who_want_the_only_place_the_second_waits_for_the_first() -> None:
    fleet = FleetBuilder(max_models=1)
    a = fleet.runner("A", 4)
    fleet.waits(2, "B", 4)
    fleet.waits(3, "C", 4)
    fleet.looks()
    passes = fleet.fleet.passes[:]
    assert fleet.first_pass() == ["Claim 2 {A}", "Wait 2 evicting_idle", "Wait 3 behind", "Drain A evicted_for 2"]
    # The unit is free at `stopping`, the bytes only after the exit.
    assert [fleet._line(decision) for decision in passes[1]] == ["StartLoad 2 fits on g0", "Wait 2 loading"]
    assert a.state is State.STOPPING
    assert fleet.reasons() == {2: "loading", 3: "behind"}
    fleet.ready("B")
    assert fleet.decided() == ["Grant 2 first_of_load", "Claim 3 {B}"]


def test_12_hopeless_is_refused_before_anybody_goes_and_partial_empties_its_device() -> None:
    fleet = FleetBuilder(ram=32)
    x = fleet.runner("X", 4)
    fleet.arrives(2, "huge", 60)
    assert fleet.first_pass() == ["Refuse 2 never_fits"]
    fleet.decided()
    fleet.arrives(3, "big", 30)
    assert fleet.first_pass() == ["Claim 3 {X}", "Wait 3 evicting_idle", "Drain X evicted_for 3"]
    fleet.decided()
    fleet.exits(x, frees=False)
    assert fleet.decided() == []
    fleet.recovers(x)
    assert fleet.decided() == ["StartLoad 3 fits on g0"]
    placement = fleet.of("big").placement
    assert placement.kind == "partial"
    assert placement.reservation["g0"] == 24 * 2**30 * 80 // 100
    assert placement.reservation["g0"] + placement.reservation["cpu"] == 30 * 2**30
    assert placement.load_lock == {"g0", "cpu"}


def test_13_the_bound_spares_only_head_starts() -> None:
    fleet = FleetBuilder(queue_bound=1)
    fleet.runner("X", 10, leases=1)
    fleet.arrives(2, "B", 18)
    fleet.decided()
    fleet.arrives(3, "C", 18)
    fleet.arrives(4, "X", 10)
    assert fleet.decided() == ["Refuse 3 queue_full", "Refuse 4 queue_full"]


def test_13_bound_0_still_swaps_idle_models() -> None:
    fleet = FleetBuilder(TWO_GPUS, queue_bound=0)
    fleet.runner("X", 14, leases=1)
    y = fleet.runner("Y", 14, on="g1")
    fleet.arrives(3, "B", 16)
    assert fleet.decided() == ["Claim 3 {Y}", "Drain Y evicted_for 3"]
    fleet.exits(y)
    assert fleet.decided() == ["StartLoad 3 fits on g1"]


def test_13_bound_0_does_not_wait_for_a_busy_one() -> None:
    fleet = FleetBuilder(queue_bound=0)
    fleet.runner("X", 14, leases=1)
    fleet.arrives(3, "B", 16)
    assert fleet.decided() == ["Refuse 3 queue_full"]


def test_14_a_load_that_nobody_waits_for_is_aborted_even_if_other_options_wait() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "A", 8)
    fleet.arrives(4, "A", 8, ctx=8192)
    a = fleet.of("A")
    fleet.decided()
    fleet.fleet.leave(1, fleet.now)
    assert fleet.first_pass() == ["Abort A", "Wait 4 memory_returning"]
    assert a.state is State.STOPPING
    fleet.exits(a, frees=False)
    assert fleet.decided() == ["StartLoad 4 fits on g0"]


def test_15_a_wide_load_takes_its_turn_on_both_devices() -> None:
    fleet = FleetBuilder(TWO_GPUS)
    fleet.runner("s", 2, state=State.LOADING, served=0)
    fleet.waits(1, "s", 2)
    fleet.waits(2, "wide", 30)
    fleet.waits(3, "t", 2)
    fleet.looks()
    assert fleet.first_pass() == ["Wait 1 loading", "Wait 2 device_loading", "Wait 3 device_loading"]


def test_16_recovery_holds_up_only_who_needs_those_bytes() -> None:
    fleet = FleetBuilder(TWO_GPUS)
    fleet.runner("X", 20, state=State.RECOVERING)
    fleet.runner("Y", 10, on="g1", leases=1)
    fleet.waits(2, "A", 8)
    fleet.waits(3, "B", 12)
    fleet.looks()
    assert fleet.first_pass() == ["StartLoad 2 fits on g1", "Wait 2 loading", "Wait 3 memory_returning"]


def test_17_after_out_of_memory_everybody_else_goes_with_last_call() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 4, leases=1)
    fleet.runner("Y", 4)
    fleet.waits(3, "A", 6)
    fleet.fleet.oom_retries["A"] = OomRetry(None, alone=True)
    fleet.waits(4, "c", 1)
    fleet.waits(5, "X", 4)
    fleet.looks()
    assert fleet.first_pass() == [
        "Claim 3 {X, Y}",
        "Wait 3 evicting_all",
        "Wait 4 behind",
        "Grant 5 last_call, no slot",
        "Drain Y evicted_for 3",
    ]


def test_18_upstreams_two_victims_are_one_here() -> None:
    fleet = FleetBuilder()
    fleet.runner("a", 1, keep=5 * MS)
    fleet.runner("b", 10, leases=1, keep=10 * MS)
    fleet.reported(12)
    fleet.arrives(3, "d", 13)
    assert fleet.first_pass() == ["Claim 3 {b}", "Wait 3 evicting_busy"]


def test_19_what_is_stuck_is_out_of_reach_for_all_and_refuses_its_own_model() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 6, state=State.STOPPING)
    x.stuck = True
    fleet.waits(2, "X", 6)
    fleet.waits(3, "Y", 14)
    fleet.waits(4, "Z", 20)
    fleet.looks()
    assert fleet.first_pass() == [
        "Refuse 2 predecessor_stuck",
        "StartLoad 3 fits on g0",
        "Wait 3 loading",
        "Wait 4 behind",
    ]
