"""Clients leave and servers end at their k-th steps, in the states that matter; nobody else may notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from simulations.explore.moments import Mode, Moment, disturbed
from simulations.explore.sweep import Sweep, cancels, cancels_at_the_end, ends, pairs, sample, sweep
from simulations.scenarios import Fault, Request, Scenario, What
from simulations.scenarios.seeds import Spot
from simulations.world.behaviour import Behaviour
from trio_ollama.scheduler import Policy, Scheduler
from trio_ollama.scheduler.core.fleet import Fleet

LARGE: Final = {"a": 16, "b": 16}
QUICK: Final = Behaviour(load_time=1.0, prompt_time=0.01, token_time=0.01, settle_time=0.05)


def spot(*requests: Request, faults: tuple[Fault, ...] = ()) -> Spot:
    return Spot("here", Scenario(models=LARGE, usual=QUICK, requests=requests, faults=faults))


SPOTS: Final = {
    "alone": spot(Request()),
    "sharing a load": spot(Request(), Request(at=0.5), Request(at=0.5)),
    "evicting": spot(
        Request(tokens=20), Request(model="b", at=1.05), Request(at=1.1, tokens=2), Request(at=1.1, tokens=2)
    ),
    "reloading": spot(
        Request(tokens=20),
        Request(at=1.05, num_ctx=2048),
        Request(at=1.1, num_ctx=2048, tokens=2),
        Request(at=1.15, tokens=2),
    ),
    "waiting for a slot": spot(Request(tokens=20), Request(at=1.05), Request(at=1.1)),
    "embedding": spot(
        Request(tokens=5), Request(at=1.0, inputs=4, slot=False, tokens=0), Request(at=1.02)
    ),
    "at the end of keep-alive": spot(Request(tokens=0, keep_alive=1.0), Request(at=2.0, keep_alive=0.0)),
    "waiting for figures": spot(
        Request(at=10), Request(model="b", at=10), faults=(Fault(at=9, what=What.QUERY_TIME, amount=0.5),)
    ),
}  # fmt: skip


def assert_well(result: Sweep, *, runs: int) -> None:
    assert result.runs >= runs
    assert not result.failures, str(result.failures[0])


@pytest.mark.parametrize("name", SPOTS)
def test_nobody_else_notices_that_a_client_leaves(name: str) -> None:
    """I01-I03, I05-I07, I09-I11, I14, I18, I24."""
    for slots in (1, 2):
        case = SPOTS[name]
        case = replace(case, scenario=replace(case.scenario, policy=Policy(num_parallel=slots)), schedule=slots)
        assert_well(sweep(case, sample(cancels(case), 40)), runs=30)


@pytest.mark.parametrize("name", SPOTS)
def test_nothing_outlives_the_server(name: str) -> None:
    """R67, R68, I25."""
    case = SPOTS[name]
    assert_well(sweep(case, sample(ends(case), 40)), runs=40)


@pytest.mark.parametrize("name", ["evicting", "reloading"])
def test_two_leave(name: str) -> None:
    case = SPOTS[name]
    assert_well(sweep(case, pairs(case, 20)), runs=20)
    assert_well(sweep(case, cancels_at_the_end(case, 20)), runs=20)


def test_a_plan_has_every_step_and_is_always_the_same() -> None:
    case = SPOTS["sharing a load"]
    plan = list(cancels(case))
    assert plan == list(cancels(case))
    for number, mode in ((2, Mode.BLOCKED), (2, Mode.RACING), (3, Mode.BETWEEN)):
        steps = [moment.k for (moment,) in plan if (moment.target, moment.mode) == (number, mode)]
        assert steps == list(range(1, len(steps) + 1))
        last, beyond = (disturbed(case, Moment(number, mode, len(steps) + more)) for more in (0, 1))
        assert last.at[0] < beyond.at[0] == float("inf")
    assert list(pairs(case, 5)) == list(pairs(case, 5))
    assert all(one.target != other.target for one, other in pairs(case, 30))
    assert not list(pairs(SPOTS["alone"], 5))


def test_a_sample_is_spread_over_the_whole_plan() -> None:
    plan = [(Moment(1, Mode.BETWEEN, k),) for k in range(10)]
    assert [moment.k for (moment,) in sample(plan, 4)] == [0, 2, 5, 7]
    assert sample(plan, 10) == sample(plan, 11) == plan


def test_a_moment_is_spelt_as_it_is_read() -> None:
    for text in ("2:racing:17", "1:blocked:3", "end:between:40", "close:between:1"):
        assert str(Moment.parse(text)) == text
    for text in ("2:racing", "end:racing:1", "stop:between:1", "x:between:1", "2:between:x"):
        with pytest.raises(ValueError, match=text):
            Moment.parse(text)


def test_a_lost_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep is not blind: a lease that stays behind when its request is cancelled in the step of the grant."""
    leave = Fleet.leave
    monkeypatch.setattr(Fleet, "leave", lambda self, seq, now: leave(self, seq, now) if seq in self.waiters else None)
    case = SPOTS["sharing a load"]
    result = sweep(case, cancels(case, modes=[Mode.BETWEEN]), most=1)
    (failure,) = result.failures
    assert str(failure).startswith(f"here --at {failure.moments[0]}: ")
    assert sweep(case, [failure.moments]).failures == [failure]  # so it is had again


def test_a_server_that_forgets_who_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I25."""
    monkeypatch.setattr(Scheduler, "close", lambda self: None)
    case = SPOTS["sharing a load"]
    (failure,) = sweep(case, ends(case, [What.END]), most=1).failures
    assert "the end came at" in str(failure)
