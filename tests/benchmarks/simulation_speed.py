"""How fast the simulation is. Run as a script; pytest does not collect it.

    python -m tests.benchmarks.simulation_speed [--runs N] [--profile]

Scenario runs per second of processor time on one core: random workloads of all kinds with 20 clients each, with all
rules checked and without; the same without their faults; only the first four clients of each; and what it costs to wake
a task by itself. `--profile` says where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
from collections.abc import Callable
from dataclasses import replace
from time import process_time

import trio

from simulations.explore.many import less_garbage
from simulations.scenarios.seeds import Spot, find
from simulations.scenarios.workloads import KINDS
from simulations.world import determinism
from simulations.world.loop import sleep

PARTS = {
    "the scheduler's steps": ("scheduler/scheduler.py", "step"),
    "planner passes, those of the rules included": ("core/plan.py", "plan"),
    "rules after a step": ("scenarios/watch.py", "after_step"),
    "rules at rest": ("scenarios/watch.py", "at_rest"),
    "scopes entered": ("trio/_core/_run.py", "__enter__"),
    "scopes left": ("trio/_core/_run.py", "_close"),
    "tasks begun": ("trio/_core/_run.py", "spawn_impl"),
    "tasks ended": ("trio/_core/_run.py", "task_exited"),
    "looks at the machine": ("scheduler/facts.py", "query"),
}


def best(spots: list[Spot], play: Callable[[Spot], object], rounds: int = 5) -> float:
    """Runs per second of processor time in the fastest of some rounds."""
    fastest = 0.0
    for _ in range(rounds):
        began = process_time()
        for spot in spots:
            play(spot)
        fastest = max(fastest, len(spots) / (process_time() - began))
    return fastest


async def sleepers() -> None:
    """20 tasks that wake 20 times each, and nothing else."""

    async def sleeper(number: int) -> None:
        for _ in range(20):
            await sleep(0.1 + number / 1000)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(sleeper, number)


def profile(spots: list[Spot]) -> None:
    profiler = cProfile.Profile(process_time)
    profiler.enable()
    for spot in spots:
        spot.play()
    profiler.disable()
    found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    whole = sum(own for _, _, own, _, _ in found.values())
    for name, (file, function) in PARTS.items():
        spent = sum(
            entry[3] for (path, _, called), entry in found.items() if path.endswith(file) and called == function
        )
        print(f"  {100 * spent / whole:5.1f} %  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=4 * len(KINDS))
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    spots = [find(str(seed)) for seed in range(options.runs)]
    with less_garbage():
        steps = sum(spot.play().steps for spot in spots) / len(spots)
        print(f"{len(spots)} scenarios with 20 clients, {steps:.0f} steps of tasks each; per second of a core:")
        print(f"  {best(spots, lambda spot: spot.play()):6.1f} runs with all rules")
        print(f"  {best(spots, lambda spot: spot.play(watched=False)):6.1f} runs without those that follow each step")
        plain = [replace(spot, scenario=replace(spot.scenario, faults=(), launches={})) for spot in spots]
        print(f"  {best(plain, lambda spot: spot.play()):6.1f} runs in which nothing goes wrong")
        few = [replace(spot, scenario=replace(spot.scenario, requests=spot.scenario.requests[:4])) for spot in plain]
        print(f"  {best(few, lambda spot: spot.play()):6.1f} of these with 4 clients")
        rate = best(spots[:20], lambda spot: determinism.run(sleepers, seed=spot.schedule))
        print(f"  {rate:6.1f} runs of 20 tasks that only wake 20 times each: {1e6 / rate / 400:.1f} us for each time")
        if options.profile:
            print("Where the time goes (parts overlap):")
            profile(spots)


if __name__ == "__main__":
    main()
