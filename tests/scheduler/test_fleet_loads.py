"""When a load starts, with which memory figures, and what follows when it runs out of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.fleet_builder import GIB, FleetBuilder, S, demand
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.effects import Measure, Refused, Spawn
from trio_ollama.scheduler.core.events import RetryPlanned
from trio_ollama.scheduler.core.lifecycle import State

BIG_CONTEXT = 262144


def out_of_memory(fleet: FleetBuilder, name: str) -> None:
    """The load of a model runs out of memory and its process exits."""
    runner = fleet.of(name)
    if runner.state is State.SPAWNING:
        fleet.fleet.spawned(runner.gen, 99, fleet.now)
    fleet.fleet.exited(runner.gen, "cudaMalloc failed", out_of_memory=True, now=fleet.now)
    fleet.looks()
    fleet.fleet.recovered(runner.gen, "memory back", fleet.now)


# -- figures ------------------------------------------------------------------------------------------------------


def test_R35_no_load_starts_on_figures_from_before_the_last_exit() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 20)
    fleet.fleet.exited(x.gen, "crashed", now=fleet.now)
    fleet.fleet.recovered(x.gen, "nothing to recover", fleet.now)
    fleet.arrives(1, "B", 12)
    # By the old figures it would be loaded partly into RAM, for its whole life.
    assert fleet.reasons() == {1: "measuring"}
    assert Measure() in fleet.effects()
    fleet.fleet.report(fleet.fleet.devices, -1, fleet.now)  # asked before the exit
    assert fleet.reasons() == {1: "measuring"}
    fleet.reported(24)
    fleet.looks()
    assert fleet.of("B").placement.kind == "single"


def test_R35_nobody_is_stopped_for_figures_from_before_the_last_exit() -> None:
    fleet = FleetBuilder()
    y, x = fleet.runner("Y", 4), fleet.runner("X", 16)
    fleet.arrives(1, "B", 12)
    assert fleet.decided() == ["Claim 1 {X}", "Drain X evicted_for 1"]
    fleet.leaves(1)
    fleet.fleet.exited(x.gen, "done", now=fleet.now)
    fleet.fleet.recovered(x.gen, "not seen", fleet.now)
    fleet.arrives(2, "B", 12)
    assert fleet.reasons() == {2: "measuring"}
    assert (y.state, y.claimed_by) == (State.READY, 2)  # closed, but not stopped
    fleet.arrives(3, "Y", 4)
    assert fleet.reasons()[3] == "runner_claimed"
    fleet.decided()
    fleet.reported(20)
    fleet.looks()
    assert fleet.decided() == ["StartLoad 2 fits on g0", "Claim 2 {}", "Grant 3 ready"]


def test_R35_a_kept_claim_needs_no_fresh_figures() -> None:
    fleet = FleetBuilder()
    x = fleet.runner("X", 20, leases=1)
    fleet.arrives(1, "B", 12)
    fleet.passes(60 * S)
    fleet.releases(-1)
    assert fleet.decided() == ["Claim 1 {X}", "Drain X evicted_for 1"]
    assert x.state is State.STOPPING


def test_R35_memory_that_is_coming_back_is_waited_for_only_by_those_who_need_it() -> None:
    fleet = FleetBuilder({"g0": 24, "g1": 24})
    x = fleet.runner("X", 20)
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    fleet.exits(x, frees=False)
    fleet.arrives(1, "B", 12)
    fleet.arrives(2, "C", 12)
    assert fleet.reasons() == {1: "loading", 2: "memory_returning"}
    fleet.recovers(x)
    assert fleet.reasons() == {1: "loading", 2: "loading"}


def test_R37_reservations_count_where_the_driver_lags() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 8)
    fleet.reported(24)  # does not show X yet
    fleet.arrives(1, "B", 12.8)
    assert fleet.decided() == ["StartLoad 1 fits on g0"]  # needs all of the 16 left
    fleet.ready("B")
    fleet.releases(1)
    fleet.reported(24)
    fleet.arrives(2, "c", 4)
    assert fleet.decided()[-2:] != ["StartLoad 2 fits on g0"]


# -- which load -----------------------------------------------------------------------------------------------------


def test_R42_a_model_that_can_never_fit_is_refused_before_anybody_goes() -> None:
    fleet = FleetBuilder(ram=8)
    x = fleet.runner("X", 4)
    fleet.arrives(1, "B", 28)  # 19.2 on the GPU and 8 in RAM
    [refusal] = fleet.effects()
    assert refusal == Refused(1, Because.NEVER_FITS, f"{28 * GIB} {24 * GIB * 80 // 100 + 8 * GIB}")
    assert x.state is State.READY
    fleet.arrives(2, "B", 27)
    assert x.state is State.STOPPING


def test_R47_automatic_limit_is_three_for_each_gpu_and_never_latched() -> None:
    fleet = FleetBuilder()
    devices = fleet.fleet.devices
    assert fleet.fleet.model_limit == 3
    fleet.fleet.report(devices[1:], fleet.now, fleet.now)
    assert fleet.fleet.model_limit == 3  # RAM only: three, too
    more = FleetBuilder({"g0": 24, "g1": 24})
    fleet.fleet.report(more.fleet.devices, fleet.now, fleet.now)
    assert fleet.fleet.model_limit == 6
    assert FleetBuilder(max_models=2).fleet.model_limit == 2


def test_I14_no_load_starts_beyond_the_limit() -> None:
    fleet = FleetBuilder(max_models=2)
    fleet.runner("X", 1, leases=1)
    fleet.runner("Y", 1, leases=1)
    fleet.arrives(1, "Z", 1)
    assert fleet.reasons() == {1: "evicting_busy"}
    fleet.releases(-1)
    # X counts no longer once it stops; its bytes are not needed.
    assert fleet.decided() == ["Claim 1 {X}", "Drain X evicted_for 1", "StartLoad 1 fits on g0"]


def test_R46_explicit_partial_offload_evicts_nobody_for_bytes() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 22)
    fleet.arrives(1, "B", 20, num_gpu=8)
    assert fleet.decided() == ["StartLoad 1 explicit_partial on g0"]
    assert fleet.of("B").reservation["g0"] == 2 * GIB  # as far as it is there


def test_R46_a_model_in_ram_loads_beside_those_on_gpus() -> None:
    fleet = FleetBuilder()
    fleet.runner("X", 22)
    fleet.arrives(1, "B", 20, num_gpu=0)
    assert fleet.decided() == ["StartLoad 1 fits on cpu"]


def test_R59_automatic_requests_use_a_larger_explicit_runner_and_explicit_ones_alternate() -> None:
    def loads(*contexts: int | None) -> int:
        fleet = FleetBuilder()
        count = 0
        for seq in range(1, 101):
            fleet.arrives(seq, "X", 8, ctx=contexts[seq % len(contexts)])
            fleet.looks()
            for runner in list(fleet.fleet.runners.values()):
                if runner.state is State.STOPPING:
                    fleet.exits(runner)
            if fleet.of("X").loading:
                count += 1
                fleet.ready("X")
            fleet.releases(seq)
        return count

    assert loads(None, 65536) == 1
    assert loads(65536, None) == 2
    assert loads(2048, 8192) == 100  # one after the other: each switch reloads, and serves its request


def test_R59_of_two_options_that_wait_together_each_load_serves_several() -> None:
    fleet = FleetBuilder()
    for seq in range(1, 101):
        fleet.arrives(seq, "X", 8, ctx=(2048, 8192)[seq % 2])
    loads = 0
    while fleet.fleet.waiters:
        runner = fleet.of("X")
        assert runner.loading
        loads += 1
        fleet.ready("X")
        for seq in list(runner.leases):
            fleet.releases(seq)
        fleet.exits(runner)
    assert loads <= 2 * (50 // 5 + 1)  # its first request, and four by last call


# -- out of memory --------------------------------------------------------------------------------------------------


def test_R48_one_retry_with_everybody_else_gone() -> None:
    fleet = FleetBuilder()
    y = fleet.runner("Y", 4)
    fleet.arrives(1, "X", 8, ctx=4096)
    out_of_memory(fleet, "X")
    assert fleet.reasons() == {1: "evicting_all"}
    assert y.state is State.STOPPING
    fleet.decided()
    fleet.exits(y)
    assert fleet.decided() == ["StartLoad 1 oom_retry_alone on g0"]
    fleet.effects()
    out_of_memory(fleet, "X")
    assert [effect for effect in fleet.effects() if isinstance(effect, Refused)] == [
        Refused(1, Because.LOAD_FAILED, "cudaMalloc failed")
    ]
    assert fleet.fleet.oom_retries == {}


def test_R48_without_others_or_without_out_of_memory_the_error_comes_at_once() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8, ctx=4096)
    out_of_memory(fleet, "X")
    assert Refused(1, Because.LOAD_FAILED, "cudaMalloc failed") in fleet.effects()
    y = fleet.runner("Y", 4)
    fleet.arrives(2, "X", 8, ctx=4096)
    x = fleet.of("X")
    fleet.fleet.spawned(x.gen, 99, fleet.now)
    fleet.fleet.load_failed(x.gen, "bad model", out_of_memory=False, now=fleet.now)
    assert Refused(2, Because.LOAD_FAILED, "bad model") in fleet.effects()
    assert y.state is State.READY


def test_R49_an_automatic_context_steps_down_once() -> None:
    fleet = FleetBuilder()
    fleet.arrives(1, "X", 8, num_ctx=BIG_CONTEXT)
    assert fleet.of("X").config.num_ctx == BIG_CONTEXT
    out_of_memory(fleet, "X")
    assert fleet.of("X").config.num_ctx == 32768
    fleet.arrives(2, "X", 8)  # a request of the same kind joins
    assert fleet.reasons() == {1: "loading", 2: "loading"}
    out_of_memory(fleet, "X")
    assert fleet.reasons() == {}


def test_R49_an_explicit_context_is_never_changed() -> None:
    fleet = FleetBuilder()
    y = fleet.runner("Y", 4)
    fleet.arrives(1, "X", 8, ctx=BIG_CONTEXT)
    out_of_memory(fleet, "X")
    fleet.exits(y)
    assert fleet.of("X").config.num_ctx == BIG_CONTEXT


def looks_at_images(fleet: FleetBuilder, seq: int, **wish: Any) -> None:
    """A request for a model with an image encoder comes."""
    wanted = demand("X", 8, **wish)
    fleet.fleet._queue.last_seq = seq - 1
    fleet.fleet.arrive(replace(wanted, model=replace(wanted.model, projectors=("/eyes",))), fleet.now)


def test_R48_images_are_encoded_on_the_cpu_when_the_gpu_has_no_room_for_it() -> None:
    """Also where there is nothing else to try; once, and whoever comes meanwhile joins."""
    fleet = FleetBuilder()
    looks_at_images(fleet, 1, ctx=4096)
    assert not fleet.of("X").config.projector_on_cpu
    out_of_memory(fleet, "X")
    retried = fleet.of("X")
    assert (retried.config.projector_on_cpu, retried.config.num_ctx) == (True, 4096)
    assert "images encoded on the CPU" in next(e.text() for e in fleet.fleet.events if isinstance(e, RetryPlanned))
    looks_at_images(fleet, 2, ctx=4096)
    assert fleet.reasons() == {1: "loading", 2: "loading"}
    out_of_memory(fleet, "X")
    assert fleet.reasons() == {}
    looks_at_images(fleet, 3, ctx=4096)
    assert not fleet.of("X").config.projector_on_cpu


def test_R48_on_the_cpu_there_is_nothing_to_move() -> None:
    fleet = FleetBuilder()
    looks_at_images(fleet, 1, ctx=4096, num_gpu=0)
    out_of_memory(fleet, "X")
    assert fleet.reasons() == {}


def test_R50_the_wish_to_be_alone_goes_with_the_last_who_has_it() -> None:
    fleet = FleetBuilder()
    y = fleet.runner("Y", 4, leases=1)
    fleet.arrives(1, "X", 8, ctx=4096)
    out_of_memory(fleet, "X")
    assert y.claimed_by == 1
    fleet.arrives(2, "Y", 4)
    assert fleet.reasons()[2] == "runner_claimed"
    fleet.leaves(1)
    assert (y.claimed_by, list(y.leases)) == (None, [-1, 2])
    assert fleet.fleet.oom_retries == {}
    fleet.decided()
    fleet.arrives(3, "X", 8, ctx=4096)
    assert fleet.decided() == ["StartLoad 3 fits on g0"]  # no retry any more


def test_R48_a_retry_is_forgotten_though_others_still_wait() -> None:
    fleet = FleetBuilder()
    fleet.runner("Y", 16, leases=1)
    fleet.arrives(1, "B", 18)
    fleet.arrives(2, "X", 2, ctx=4096)
    assert fleet.reasons() == {1: "evicting_busy", 2: "behind"}
    fleet.leaves(1)
    out_of_memory(fleet, "X")
    fleet.arrives(3, "B", 18)
    fleet.leaves(2)
    assert list(fleet.fleet.waiters) == [3]
    assert fleet.fleet.oom_retries == {}


def test_R48_other_requests_flow_on_while_a_retry_waits() -> None:
    fleet = FleetBuilder()
    y = fleet.runner("Y", 4, leases=1)
    fleet.waits(1, "X", 8, ctx=4096)
    fleet.fleet.leave(1, fleet.now)
    fleet.arrives(2, "X", 8, ctx=4096)
    out_of_memory(fleet, "X")
    fleet.decided()
    fleet.releases(-1)
    assert y.state is State.STOPPING
    fleet.exits(y)
    assert fleet.decided()[-1] == "StartLoad 2 oom_retry_alone on g0"
    assert [effect for effect in fleet.effects() if isinstance(effect, Spawn)][-1] == Spawn(fleet.of("X").gen)


def test_I23_a_place_is_kept_where_the_memory_will_be() -> None:
    """Found by a random fleet: it was kept on the GPU with most free bytes, though those could never suffice."""
    fleet = FleetBuilder({"g0": 24, "g1": 24})
    fleet.runner("X", 18, leases=1, state=State.DRAINING)
    fleet.runner("Y", 9, on="g1", leases=1)
    fleet.arrives(1, "X", 18)  # needs 22.5: what X leaves on g0, and nearly all that is free there
    fleet.arrives(2, "c", 4)
    assert fleet.decided() == ["StartLoad 2 fits on g1"]
