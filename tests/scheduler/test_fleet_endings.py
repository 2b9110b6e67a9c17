"""How runners end: asked to stop, crashed, stuck, out of memory, at shutdown."""

from __future__ import annotations

import pytest

from tests.support.fleet_builder import FleetBuilder, S
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.effects import Granted, Lost, Refused, SlotGranted, Spawn, Stop
from trio_ollama.scheduler.core.lifecycle import IllegalTransitionError, State

BACKOFF = 30 * S


# -- stop and delete ----------------------------------------------------------------------------------------------


def test_R25_stop_of_a_busy_runner_is_sticky_and_later_requests_get_a_fresh_one() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8, leases=1)
    assert fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    assert x.state is State.DRAINING
    fleet.arrives(1, "X", 8, keep=300 * S)
    assert fleet.reasons() == {1: "predecessor_draining"}
    assert x.keep_alive == 300 * S
    fleet.releases(-1)
    assert x.state is State.STOPPING
    fleet.exits(x)
    assert fleet.of("X").gen != x.gen
    fleet.ready("X")
    assert Granted(1, fleet.of("X").gen) in fleet.effects()


def test_R25_two_stops_are_one_and_stop_of_what_is_not_loaded_loads_nothing() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8, leases=1)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.fleet.stop("X", Because.DELETED, fleet.now)
    assert x.drain_because is Because.STOPPED
    fleet.releases(-1)
    assert fleet.effects().count(Stop(x.gen)) == 1
    assert not fleet.fleet.stop("Y", Because.STOPPED, fleet.now)
    assert fleet.effects() == []


def test_R25_stop_of_an_idle_runner_ends_it_at_once_whatever_its_keep_alive() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8)
    fleet.fleet.stop("X", Because.DELETED, fleet.now)
    assert (x.state, x.drain_because) == (State.STOPPING, Because.DELETED)


def test_R26_stop_during_a_load_serves_those_who_wait_and_then_drains() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    fleet.arrives(2, "X", 8)
    x = fleet.of("X")
    assert fleet.fleet.stop("X", Because.DELETED, fleet.now)
    fleet.arrives(3, "X", 8)  # too late for this one
    fleet.decided()
    fleet.ready("X")
    assert fleet.decided() == ["Grant 1 first_of_load", "Grant 2 ready, no slot"]
    assert (x.state, x.drain_because) == (State.DRAINING, Because.DELETED)
    assert fleet.reasons() == {3: "predecessor_draining"}
    fleet.releases(1)
    fleet.releases(2)
    fleet.exits(x)
    assert fleet.decided() == ["StartLoad 3 fits on g0"]


def test_R26_a_second_stop_does_not_let_later_requests_in() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.arrives(2, "X", 8)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.decided()
    fleet.ready("X")
    assert fleet.decided() == ["Grant 1 first_of_load"]


@pytest.mark.parametrize("finish", [False, True])
def test_R26_a_stopped_load_ends_with_its_last_waiter_even_if_loads_are_finished_otherwise(finish: bool) -> None:
    fleet = FleetBuilder(finish_abandoned_load=finish)
    fleet.arrives(1, "X", 8)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.arrives(2, "X", 8)
    fleet.decided()
    fleet.leaves(1)
    assert fleet.decided() == ["Abort X"]


def test_R26_a_stopped_load_drains_in_the_step_of_its_last_grant_not_by_a_reload() -> None:
    """Otherwise a later waiter would reload it for an equal configuration (planner, fault d)."""
    fleet = FleetBuilder(num_parallel=4)
    fleet.arrives(1, "X", 8)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.arrives(2, "X", 8)
    fleet.decided()
    fleet.ready("X")
    assert fleet.decided() == ["Grant 1 first_of_load"]
    assert fleet.state("X") is State.DRAINING


def test_R26_a_stopped_load_that_has_stopped_is_waited_for_like_any_other() -> None:
    """Its late requests wait for its exit, and are refused when that cannot come (found by a random fleet)."""
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.arrives(2, "X", 8)
    x = fleet.ready("X")
    fleet.releases(1)
    assert x.state is State.STOPPING
    assert fleet.reasons() == {2: "memory_returning"}
    fleet.fleet.stuck(x.gen, fleet.now)
    assert Refused(2, Because.PREDECESSOR_STUCK, f"pid {x.pid}") in fleet.effects()


# -- crashes ------------------------------------------------------------------------------------------------------


def test_R79_a_runner_that_dies_idle_is_gone_and_its_memory_free() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 16)
    fleet.waits(1, "B", 18)
    fleet.exits(x)
    assert x.state is State.GONE
    assert fleet.decided()[-1] == "StartLoad 1 fits on g0"


def test_R80_all_leases_of_a_dead_runner_are_lost_once_and_others_untouched() -> None:
    fleet = FleetBuilder()
    x, y = fleet.runner("X", 4, leases=3), fleet.runner("Y", 4, leases=1)
    fleet.fleet.exited(x.gen, "killed by signal 9", now=fleet.now)
    lost = [effect for effect in fleet.effects() if isinstance(effect, Lost)]
    assert [(effect.seq, effect.error) for effect in lost] == [(seq, "killed by signal 9") for seq in (-1, -2, -3)]
    assert (len(x.leases), x.held_slots, list(x.slot_queue)) == (0, 0, [])
    assert list(y.leases) == [-4]
    fleet.releases(-1)  # comes late: a no-op (R13)
    assert list(y.leases) == [-4]


def test_R80_those_who_wait_for_a_dead_runner_share_one_fresh_load() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 10, leases=1)
    fleet.arrives(1, "B", 12)  # claims X
    fleet.arrives(2, "X", 10)
    fleet.arrives(3, "X", 10)
    fleet.leaves(1)  # X is open again: 2 and 3 hold leases
    fleet.exits(x)
    fleet.arrives(4, "X", 10)
    fleet.arrives(5, "X", 10)
    loads = [effect for effect in fleet.effects() if isinstance(effect, Spawn)]
    assert loads == [Spawn(fleet.of("X").gen)]


def test_R78_three_crashes_in_a_row_and_the_model_fails_fast_for_a_while() -> None:
    fleet = FleetBuilder()
    for seq in (1, 2, 3):
        fleet.arrives(seq, "X", 8)
        x = fleet.of("X")
        fleet.fleet.spawned(x.gen, 99, fleet.now)
        fleet.fleet.exited(x.gen, f"exit status 132, try {seq}", now=fleet.now)
        fleet.recovers(x)
    fleet.effects()
    fleet.arrives(4, "X", 8)
    assert fleet.effects() == [Refused(4, Because.CRASH_BACKOFF, "exit status 132, try 3")]
    fleet.arrives(5, "Y", 8)
    assert Spawn(fleet.of("Y").gen) in fleet.effects()
    fleet.ready("Y")
    fleet.passes(BACKOFF)
    fleet.looks()
    fleet.arrives(6, "X", 8)
    assert fleet.reasons()[6] == "loading"


def test_R78_an_answered_request_ends_the_row_of_crashes() -> None:
    fleet = FleetBuilder()
    for seq in range(1, 8):
        fleet.arrives(seq, "X", 8)
        x = fleet.ready("X")
        fleet.releases(seq, served=True)
        fleet.exits(x)
    assert "Refuse" not in " ".join(fleet.decided())


def test_R78_back_off_reaches_those_who_wait_already() -> None:
    fleet = FleetBuilder(crash_limit=1)
    fleet.runner("Y", 16, leases=1)
    fleet.arrives(1, "X", 6)
    fleet.arrives(2, "X", 6, ctx=8192)
    x = fleet.of("X")
    fleet.fleet.spawned(x.gen, 99, fleet.now)
    fleet.effects()
    fleet.fleet.exited(x.gen, "boom", now=fleet.now)
    assert [effect for effect in fleet.effects() if isinstance(effect, Refused)] == [
        Refused(1, Because.LOAD_FAILED, "boom"),
        Refused(2, Because.CRASH_BACKOFF, "boom"),
    ]


def test_R18_a_failed_load_tells_each_of_its_waiters_once_and_leaves_nothing() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    fleet.arrives(2, "X", 8)
    x = fleet.of("X")
    fleet.fleet.spawn_failed(x.gen, "no such file", fleet.now)
    refused = [effect for effect in fleet.effects() if isinstance(effect, Refused)]
    assert refused == [Refused(seq, Because.LOAD_FAILED, "no such file") for seq in (1, 2)]
    assert (fleet.fleet.runners, fleet.fleet.waiters, fleet.fleet.queues) == ({}, {}, {})


def test_R14_an_event_of_a_generation_that_is_gone_cannot_touch_its_successor() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8)
    fleet.exits(x)
    fleet.arrives(1, "X", 8)
    fleet.ready("X")
    with pytest.raises(KeyError):
        fleet.fleet.exited(x.gen, "again", now=fleet.now)
    with pytest.raises(IllegalTransitionError):
        fleet.fleet.recovered(fleet.of("X").gen, "not at all", fleet.now)
    fleet.fleet.expire(x.gen, fleet.now)
    fleet.fleet.slot_settled(x.gen, fleet.now)
    assert fleet.state("X") is State.READY


# -- stuck --------------------------------------------------------------------------------------------------------


def test_R71_a_process_that_cannot_be_killed_keeps_its_memory_and_refuses_its_model() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 6)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.arrives(1, "X", 6)
    assert fleet.reasons() == {1: "memory_returning"}
    fleet.effects()
    fleet.fleet.stuck(x.gen, fleet.now)
    assert fleet.effects() == [Refused(1, Because.PREDECESSOR_STUCK, f"pid {x.pid}")]
    fleet.decided()
    fleet.arrives(2, "B", 14)
    assert fleet.decided() == ["StartLoad 2 fits on g0"]
    fleet.exits(x)  # in the end it does go
    fleet.ready("B")
    fleet.releases(2)
    fleet.arrives(3, "X", 6)
    assert "StartLoad 3 fits on g0" in fleet.decided()


def test_R71_nobody_waits_for_memory_that_does_not_come_back() -> None:
    """A model that needs the whole device goes partly elsewhere instead of waiting for ever (planner, fault a)."""
    fleet = FleetBuilder()
    x = fleet.runner("X", 6, state=State.STOPPING)
    fleet.fleet.stuck(x.gen, fleet.now)
    fleet.arrives(1, "B", 18)
    assert fleet.decided() == ["StartLoad 1 fits on g0"]
    assert fleet.of("B").placement.kind == "partial"


# -- killed, out of memory, shutdown ------------------------------------------------------------------------------


def test_I04_a_forced_stop_gives_each_lease_an_error() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 8, leases=2)
    fleet.fleet.kill(x.gen, Because.FORCED, "the model was stopped", fleet.now)
    assert fleet.effects() == [
        Stop(x.gen, kill=True),
        Lost(-1, Because.FORCED, "the model was stopped"),
        Lost(-2, Because.FORCED, "the model was stopped"),
    ]
    assert x.state is State.STOPPING


def test_R51_out_of_memory_at_run_time_drains_everybody() -> None:
    fleet = FleetBuilder()
    idle, busy = fleet.runner("X", 4), fleet.runner("Y", 4, leases=1)
    fleet.arrives(1, "Z", 4)
    z = fleet.of("Z")
    fleet.fleet.runtime_out_of_memory(fleet.now)
    assert (idle.state, busy.state, z.loading) == (State.STOPPING, State.DRAINING, True)
    assert list(busy.leases) == [-1]
    fleet.releases(-1)
    assert (busy.state, busy.drain_because) == (State.STOPPING, Because.RUNTIME_OOM)


def test_R67_shutdown_aborts_a_load_and_gives_its_waiters_one_error() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8)
    x = fleet.of("X")
    fleet.effects()
    fleet.fleet.kill(x.gen, Because.SHUTDOWN, "server is shutting down", fleet.now)
    assert fleet.effects() == [Stop(x.gen), Refused(1, Because.LOAD_FAILED, "server is shutting down")]
    fleet.fleet.load_failed(x.gen, "too late", out_of_memory=True, now=fleet.now)
    fleet.fleet.loaded(x.gen, context=0, total_bytes=0, gpu_bytes=0, report=None, now=fleet.now)
    assert (x.state, fleet.effects()) == (State.STOPPING, [])


@pytest.mark.parametrize("finish", [False, True])
def test_R68_nothing_is_started_once_the_server_closes(finish: bool) -> None:
    fleet = FleetBuilder(finish_abandoned_load=finish)
    x = fleet.runner("X", 10, leases=1)
    fleet.arrives(1, "B", 12)
    fleet.arrives(2, "c", 2)
    c = fleet.of("c")
    fleet.effects()
    fleet.fleet.close(fleet.now)
    assert fleet.effects() == [
        Refused(1, Because.SHUTTING_DOWN, ""),
        Refused(2, Because.SHUTTING_DOWN, ""),
        Stop(c.gen),
    ]
    fleet.arrives(3, "X", 10)
    assert fleet.effects() == [Refused(3, Because.SHUTTING_DOWN, "")]
    assert list(x.leases) == [-1]
    fleet.releases(-1)
    fleet.exits(c)
    assert not [effect for effect in fleet.effects() if isinstance(effect, Spawn | Granted | SlotGranted)]
