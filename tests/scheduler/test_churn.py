"""Memory that comes back slowly, and a steady stream of small models that would use each bit of it at once."""

from __future__ import annotations

import pytest

from simulations.fleet.workloads import Arrival, Workload, facts
from simulations.fleet.world import World
from tests.support.fleet_builder import S
from trio_ollama.scheduler.core.values import FOREVER, Demand, LoadOptions, Policy

SMALL = 12
"""Models that take turns, so that their runners come and go."""


@pytest.mark.parametrize("keep", [0, S, FOREVER], ids=["gone at once", "one second", "pinned"])
@pytest.mark.parametrize("lag", [0, 3 * S])
def test_R55_a_big_model_is_not_starved_by_memory_that_is_always_about_to_come_back(keep: int, lag: int) -> None:
    """I21: what has come back is kept for the one who waits for it.

    Taking what was still coming instead, it waited here until the stream of the others ended, minutes later.
    """
    work = Workload("churn", policy=Policy(), models=[("big", 12), *((f"s{n}", 2.4) for n in range(SMALL))])
    work.recovery, work.lag, work.load, work.exit = 5 * S, lag, (S // 2, S), S // 2
    work.arrivals = [Arrival(10 * S, Demand(facts("big", 12), LoadOptions(), FOREVER), S)]
    work.arrivals += [
        Arrival(n * 4 * S // 5, Demand(facts(f"s{n % SMALL}", 2.4), LoadOptions(), keep), S // 2) for n in range(100)
    ]
    work.arrivals.sort(key=lambda arrival: arrival.at)
    world = World(work, 1)
    world.run()
    [big] = [request for request in world.requests if request.arrival.demand.model.name == "big"]
    assert big.outcome == "done"
    assert big.ended_at is not None
    assert big.ended_at - big.arrival.at < 15 * S
