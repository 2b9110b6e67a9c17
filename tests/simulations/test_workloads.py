"""Random scenarios: every kind and everything on the menu of faults is drawn, and a number is always one scenario."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from simulations.scenarios import Scenario, What
from simulations.scenarios.drawing import CLIENTS, Draw
from simulations.scenarios.troubles import PROCESS_FAULTS
from simulations.scenarios.workloads import KINDS, draw
from simulations.world.behaviour import Behaviour

SCENARIOS = [draw(seed) for seed in range(20 * len(KINDS))]


def test_a_seed_is_always_the_same_scenario() -> None:
    assert [draw(seed) for seed in range(len(KINDS))] == SCENARIOS[: len(KINDS)]


def test_kinds_take_turns_and_are_named() -> None:
    names = [scenario.name for scenario in SCENARIOS[: len(KINDS)]]
    assert names == [f"{kind} {seed}" for seed, kind in enumerate(KINDS)]


def test_every_scenario_has_its_clients_and_asks_for_models_it_names() -> None:
    for scenario in SCENARIOS:
        assert len(scenario.requests) == CLIENTS
        assert {request.model for request in scenario.requests} <= scenario.models.keys()
        assert scenario.launches.keys() <= scenario.models.keys()
        assert list(scenario.requests) == sorted(scenario.requests, key=lambda request: request.at)


def test_the_whole_menu_of_faults_is_drawn() -> None:
    whats = Counter(fault.what for scenario in SCENARIOS for fault in scenario.faults)
    assert whats.keys() == set(What)
    random, usual = Draw(0, "trouble").random, Behaviour()
    for name, spoil in PROCESS_FAULTS.items():
        assert spoil(random, usual) != usual, name
    changed = {
        field
        for scenario in SCENARIOS
        for launches in scenario.launches.values()
        for behaviour in launches
        for field in Behaviour.__dataclass_fields__
        if getattr(behaviour, field) != getattr(scenario.usual, field)
    }
    assert {field for spoil in PROCESS_FAULTS.values() for field in _touched(spoil(random, usual))} <= changed


def _touched(behaviour: Behaviour) -> set[str]:
    usual = Behaviour()
    return {name for name in Behaviour.__dataclass_fields__ if getattr(behaviour, name) != getattr(usual, name)}


def test_policies_and_wishes_vary_as_the_menu_asks() -> None:
    policies = [scenario.policy for scenario in SCENARIOS]
    requests = [request for scenario in SCENARIOS for request in scenario.requests]
    assert {0, 1, 2, 512} <= {policy.queue_bound for policy in policies}
    assert {0, 1, 2} <= {policy.max_models for policy in policies}
    assert {1, 2, 4} <= {policy.num_parallel for policy in policies}
    assert {None, 0, 0.001, 5, 300, -1} <= {request.keep_alive for request in requests}
    assert any(request.leaves == request.at for request in requests)
    assert any(request.late for request in requests)
    assert any(request.inputs and not request.slot for request in requests)
    assert {len(scenario.gpus) for scenario in SCENARIOS} == {0, 1, 2, 3}


def test_what_passes_comes_to_an_end() -> None:
    ends = [fault for scenario in SCENARIOS for fault in scenario.faults if not fault.amount]
    assert {fault.what for fault in ends} >= {What.VANISH, What.QUERIES_FAIL, What.LAG, What.MEMORY_FAILS}
    returned = [fault for scenario in SCENARIOS for fault in scenario.faults if fault.amount < 0]
    assert {fault.what for fault in returned} == {What.FOREIGN}


def test_equal_instants_are_equal() -> None:
    seed = list(KINDS).index("equal instants")
    times = Counter(request.at for request in draw(seed).requests)
    assert max(times.values()) > 1


def test_one_client_more_leaves_the_others_as_they_are() -> None:
    """Each actor draws from its own numbers."""

    def without(scenario: Scenario, number: int) -> Scenario:
        return replace(scenario, requests=scenario.requests[:number])

    one, other = Draw(3, "few"), Draw(3, "few")
    KINDS["few"](one)
    KINDS["few"](other)
    first = one.scenario()
    other.faults = [*other.faults, (What.STOP, 3)]
    assert without(other.scenario(), CLIENTS).requests == first.requests
