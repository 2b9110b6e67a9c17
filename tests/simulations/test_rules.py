"""The rules are not blind: a scheduler with one fault breaks the rule that names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import trio

from simulations.scenarios import Request, Run, Scenario, play
from trio_ollama.scheduler import Policy, Scheduler
from trio_ollama.scheduler.core import fleet as fleets
from trio_ollama.scheduler.core import loads, planner
from trio_ollama.scheduler.core.fleet import Fleet
from trio_ollama.scheduler.supervisor import Supervisor

Patch = pytest.MonkeyPatch

PAIR = {"a": 16.0, "b": 16.0}
SWAP = Scenario(
    models=PAIR,
    requests=(Request(model="a", tokens=20), Request(model="b", at=2.1), Request(model="a", at=2.15)),
)


def rules(run: Run) -> set[str]:
    return {broken.split(":")[0] for broken in run.broken}


def test_the_scheduler_as_it_is_breaks_none() -> None:
    assert not play(SWAP).broken


def keeps_the_queue_place_of_who_left(patch: Patch) -> Scenario:
    patch.setattr(Scheduler, "_leave", lambda self, ticket: None)
    return replace(SWAP, requests=(*SWAP.requests, Request(model="b", at=2.2, leaves=2.3)))


def forgets_a_lease(patch: Patch) -> Scenario:
    patch.setattr(Scheduler, "_release", lambda self, ticket, *rest, **more: self._tickets.pop(ticket.seq, None))
    return SWAP


def ends_keep_alive_early(patch: Patch) -> Scenario:
    def expire(self: Fleet, gen: int, now: int) -> None:
        self.runners[gen].deadline = now
        expiry(self, gen, now)

    expiry = Fleet.expire
    patch.setattr(Fleet, "expire", expire)
    due = Supervisor._due
    patch.setattr(Supervisor, "_due", lambda self: due(self) - 1)
    return Scenario(requests=(Request(),))


def misses_the_end_of_keep_alive(patch: Patch) -> Scenario:
    patch.setattr(Supervisor, "rearm", lambda self: None)
    return Scenario(requests=(Request(keep_alive=1), Request(model="b", at=10)))


def leaves_a_task(patch: Patch) -> Scenario:
    supervise = Scheduler._supervise

    async def twice(self: Scheduler, supervisor: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(trio.sleep, 5, name="left over")
        await supervise(self, supervisor)

    patch.setattr(Scheduler, "_supervise", twice)
    return Scenario(requests=(Request(),))


def does_not_plan_after_a_release(patch: Patch) -> Scenario:
    replan = Fleet._replan

    def release(self: Fleet, seq: int, now: int, **how: bool) -> None:
        self._replan = lambda: None  # type: ignore[method-assign]
        try:
            free(self, seq, now, **how)
        finally:
            self._replan = replan.__get__(self)  # type: ignore[method-assign]

    free = Fleet.release
    patch.setattr(Fleet, "release", release)
    return SWAP


def admits_everybody(patch: Patch) -> Scenario:
    plan = planner.plan

    def generous(view: Any) -> Any:
        bound = view.policy.queue_bound
        view.policy = replace(view.policy, queue_bound=512)
        try:
            return plan(view)
        finally:
            view.policy = replace(view.policy, queue_bound=bound)

    patch.setattr(planner, "plan", generous)
    patch.setattr(fleets, "arrival", lambda view, waiter: None)
    return replace(SWAP, policy=Policy(queue_bound=1), requests=(*SWAP.requests, *[Request(model="b", at=2.2)] * 3))


def reloads_for_the_same(patch: Patch) -> Scenario:
    honest, threads = loads.wanted, count(1)  # never the same number twice: an address may come again

    def other(demand: Any, policy: Policy) -> Any:
        return replace(honest(demand, policy), num_thread=next(threads))

    patch.setattr(loads, "wanted", other)
    return Scenario(requests=(Request(), Request(at=5)))


def trips_in_its_supervisor(patch: Patch) -> Scenario:
    patch.setattr(Supervisor, "_keep_time", lambda self: _trip())
    return Scenario(requests=(Request(),))


async def _trip() -> None:
    raise KeyError("nothing")


def counts_one_runner_too_few(patch: Patch) -> Scenario:
    plan = planner.plan

    def generous(view: Any) -> Any:
        view.policy = replace(view.policy, max_models=2)
        try:
            return plan(view)
        finally:
            view.policy = replace(view.policy, max_models=1)

    patch.setattr(planner, "plan", generous)
    patch.setattr(fleets, "arrival", lambda view, waiter: None)
    return Scenario(policy=Policy(max_models=1), requests=(Request(model="a"), Request(model="b", at=3)))


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("I10", keeps_the_queue_place_of_who_left),
        ("I10", forgets_a_lease),
        ("I15", ends_keep_alive_early),
        ("I15", misses_the_end_of_keep_alive),
        ("I18", leaves_a_task),
        ("I11", does_not_plan_after_a_release),
        ("I13", admits_everybody),
        ("I26", reloads_for_the_same),
        ("fault", trips_in_its_supervisor),
        ("I14", counts_one_runner_too_few),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_fault_breaks_its_rule(rule: str, fault: Callable[[Patch], Scenario], monkeypatch: Patch) -> None:
    scenario = fault(monkeypatch)
    run = play(scenario)
    assert rule in rules(run), run.broken
