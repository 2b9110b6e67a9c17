"""When an idle runner goes: keep-alive is armed by the last release, and by nothing else (R21-R24, R27-R29)."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.support.fleet_builder import MS, FleetBuilder, S
from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.effects import Rearm, Stop
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.values import FOREVER
from trio_ollama.scheduler.views import RunnerView


def loaded(*, keep: int | None = None, default: int = 300 * S) -> FleetBuilder:
    """Model X, loaded for request 1, which runs."""
    fleet = FleetBuilder(keep_alive=default)
    fleet.arrives(1, "X", 8, keep=keep)
    fleet.ready("X")
    fleet.effects()
    return fleet


def test_R29_keep_alive_counts_from_the_end_of_the_last_request() -> None:
    fleet = loaded(keep=8 * S)
    fleet.passes(300 * S)
    assert fleet.of("X").deadline is None
    fleet.releases(1)
    assert fleet.of("X").deadline == fleet.now + 8 * S
    fleet.passes(8 * S - 1)
    assert fleet.state("X") is State.READY
    fleet.passes(1)
    assert fleet.state("X") is State.STOPPING


def test_R21_a_timer_of_an_earlier_idle_period_does_nothing() -> None:
    fleet = loaded(keep=5 * S)
    fleet.releases(1)
    gen = fleet.of("X").gen
    fleet.passes(4 * S)
    fleet.arrives(2, "X", 8, keep=300 * S)
    fleet.fleet.expire(gen, fleet.now + S)  # fires while the runner is busy
    fleet.releases(2)
    fleet.fleet.expire(gen, fleet.now + S)  # and again while it is idle anew
    assert fleet.state("X") is State.READY
    assert fleet.of("X").deadline == fleet.now + 300 * S


def test_R21_a_request_in_the_instant_of_expiry_wins_if_it_comes_first() -> None:
    fleet = loaded(keep=5 * S)
    fleet.releases(1)
    fleet.now += 5 * S
    fleet.arrives(2, "X", 8)
    fleet.fleet.expire(fleet.of("X").gen, fleet.now)
    assert fleet.state("X") is State.READY
    assert fleet.effects()[-1] != Stop(fleet.of("X").gen)


def test_R22_a_busy_runner_is_rearmed_by_its_last_release_only() -> None:
    fleet = loaded(keep=100 * MS)
    x = fleet.of("X")
    fleet.passes(10 * S)
    fleet.arrives(2, "X", 8)
    fleet.releases(1)
    assert Rearm(x.gen) not in fleet.fleet.take_effects()
    fleet.releases(2)
    assert fleet.fleet.take_effects() == [Rearm(x.gen)]
    fleet.passes(100 * MS)
    assert fleet.effects() == [Stop(x.gen)]


KEEP_ALIVES = {"for ever": FOREVER, "at once": 0, "ten minutes": 600 * S, "absent": None}


@pytest.mark.parametrize("grants", list(permutations(KEEP_ALIVES, 3)), ids=" then ".join)
@pytest.mark.parametrize("ends", list(permutations(range(3))))
def test_R24_the_last_granted_keep_alive_wins_whoever_ends_last(grants: tuple[str, ...], ends: tuple[int, ...]) -> None:
    fleet = FleetBuilder(keep_alive=300 * S)
    for seq, kind in enumerate(grants, 1):
        fleet.arrives(seq, "X", 8, keep=KEEP_ALIVES[kind])
    x = fleet.ready("X")
    for position in ends:
        fleet.releases(position + 1)
    given = [KEEP_ALIVES[kind] for kind in grants if KEEP_ALIVES[kind] is not None]
    assert x.keep_alive == given[-1]
    if given[-1] == 0:
        assert x.state is State.STOPPING
    elif given[-1] == FOREVER:
        assert (x.state, x.deadline) == (State.READY, None)
    else:
        assert (x.state, x.deadline) == (State.READY, fleet.now + 600 * S)


def test_R24_a_load_starts_with_the_default_and_its_starter_takes_its_wish_along_when_it_leaves() -> None:
    fleet = FleetBuilder(keep_alive=7 * S)
    fleet.arrives(1, "X", 8, keep=FOREVER)
    fleet.arrives(2, "X", 8)
    fleet.leaves(1)
    fleet.ready("X")
    assert fleet.of("X").keep_alive == 7 * S


def test_R24_a_refused_or_cancelled_request_changes_no_keep_alive() -> None:
    fleet = FleetBuilder(queue_bound=0)
    x = fleet.runner("X", 8, leases=1, keep=5 * S)
    fleet.arrives(1, "X", 8, keep=0)
    assert fleet.decided() == ["Refuse 1 queue_full"]
    assert x.keep_alive == 5 * S


def test_R27_for_ever_needs_no_timer_and_zero_needs_none_either() -> None:
    fleet = loaded(keep=FOREVER)
    fleet.releases(1)
    fleet.passes(FOREVER // 2)
    assert (fleet.state("X"), fleet.of("X").deadline) == (State.READY, None)
    fleet = loaded(keep=0)
    fleet.releases(1)
    assert fleet.state("X") is State.STOPPING


def test_R27_the_smallest_keep_alive_is_one_nanosecond() -> None:
    fleet = loaded(keep=1)
    fleet.releases(1)
    assert fleet.state("X") is State.READY
    fleet.passes(1)
    assert fleet.state("X") is State.STOPPING


def test_R28_expiry_is_shown_in_the_future_unless_the_runner_drains() -> None:
    fleet = loaded(keep=5 * S)
    fleet.passes(60 * S)
    x = fleet.of("X")
    assert RunnerView.of(x, fleet.now).expires_in == 5 * S  # busy: as if it ended now
    fleet.releases(1)
    fleet.passes(2 * S)
    assert RunnerView.of(x, fleet.now).expires_in == 3 * S
    fleet.arrives(2, "X", 8, keep=FOREVER)
    assert RunnerView.of(x, fleet.now).expires_in == FOREVER
    fleet.fleet.stop("X", Because.STOPPED, fleet.now)
    view = RunnerView.of(x, fleet.now)
    assert view.draining
    assert view.expires_in < 0


def test_I15_a_claim_that_vanishes_leaves_the_deadline_of_an_idle_runner_alone() -> None:
    """Claimed on old figures it stays, idle, until fresh ones come; nobody needs it any more then."""
    fleet = FleetBuilder()
    x = fleet.runner("X", 20, keep=5 * S)
    fleet.now = S  # the figures are old
    fleet.arrives(1, "B", 10)
    assert fleet.reasons() == {1: "measuring"}
    assert x.claimed_by == 1
    fleet.leaves(1)
    assert x.claimed_by is None
    fleet.passes(4 * S)
    assert fleet.state("X") is State.STOPPING


def test_an_abandoned_load_that_is_finished_gets_its_keep_alive() -> None:
    fleet = FleetBuilder(finish_abandoned_load=True, keep_alive=5 * S)
    fleet.arrives(1, "X", 8)
    fleet.leaves(1)
    fleet.ready("X")
    assert (fleet.state("X"), fleet.of("X").deadline) == (State.READY, fleet.now + 5 * S)


def test_a_killed_runner_has_no_deadline_left() -> None:
    fleet = loaded(keep=5 * S)
    fleet.releases(1)
    x = fleet.of("X")
    fleet.fleet.kill(x.gen, Because.STOPPED, "the model was stopped", fleet.now)
    assert x.deadline is None
