"""What the planner costs. Run as a script; pytest does not collect it.

    python -m tests.benchmarks.planner_bench

Eight GPUs, 50 busy runners, nothing can start: the cost of one pass for 1,000 waiters of 10 to 1,000 models, and of
single events with 512 waiters. Best of several runs, in milliseconds. Goal: 1 ms for 50 models.
"""

from __future__ import annotations

import argparse
import cProfile
from collections.abc import Callable
from time import thread_time_ns

from tests.support.fleet_builder import FleetBuilder
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.plan import plan

GPUS = 8
RUNNERS = 50


def blocked(models: int, waiters: int) -> FleetBuilder:
    """Every GPU is full of busy runners; the waiters' models take turns."""
    fleet = FleetBuilder({f"g{number}": 80.0 for number in range(GPUS)}, max_models=1000, queue_bound=10_000)
    for number in range(RUNNERS):
        fleet.runner(f"busy{number}", 12, on=f"g{number % GPUS}", leases=2)
    for seq in range(1, waiters + 1):
        fleet.waits(seq, f"m{seq % models}", 10 + seq % models % 40)
    fleet.looks()
    assert len(fleet.fleet.waiters) == waiters, "nothing can start"
    assert all(runner.state is State.READY for runner in fleet.fleet.runners.values()), "nobody is idle"
    return fleet


def best(what: Callable[[], object], rounds: int = 30) -> float:
    """Milliseconds of processor time of the fastest round."""
    fastest = float("inf")
    for _ in range(rounds):
        start = thread_time_ns()
        what()
        fastest = min(fastest, thread_time_ns() - start)
    return fastest / 1e6


def passes() -> None:
    for waiters, models in ((1000, 10), (1000, 50), (2000, 50), (1000, 200), (1000, 1000)):
        fleet = blocked(models, waiters).fleet
        print(f"one pass, {waiters} waiters of {models} models: {best(lambda fleet=fleet: plan(fleet)):.2f} ms")  # type: ignore[misc]


def events() -> None:
    fleet = blocked(50, 512)
    seq = 512

    def arrive(name: str, size: float) -> None:
        nonlocal seq
        seq += 1
        fleet.arrives(seq, name, size)

    def arrive_and_leave(name: str, size: float) -> None:
        arrive(name, size)
        fleet.leaves(seq)

    def lease_and_release() -> None:
        arrive("open", 1)
        fleet.releases(seq)

    fleet.runner("open", 1, on="cpu", leases=1)
    print(f"arrival behind a front, and cancel: {best(lambda: arrive_and_leave('m1', 11)):.3f} ms")
    print(f"arrival of a new model, and cancel: {best(lambda: arrive_and_leave('new', 10)):.3f} ms")
    print(f"lease on an open runner, and release: {best(lease_and_release):.3f} ms")
    print(f"fresh figures: {best(fleet.looks):.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true", help="profile 200 passes for 1,000 waiters of 50 models")
    if parser.parse_args().profile:
        fleet = blocked(50, 1000).fleet
        with cProfile.Profile() as profile:
            for _ in range(200):
                plan(fleet)
        profile.print_stats("tottime")
        return
    passes()
    events()


if __name__ == "__main__":
    main()
