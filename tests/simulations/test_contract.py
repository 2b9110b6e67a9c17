"""The simulated runner keeps the same contract as the real ones: what the scheduler is tested with is what it meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from simulations.world import determinism
from simulations.world.factory import SimulatedRunnerFactory
from simulations.world.hardware import SimulatedHardware
from tests.runners.contract_suite import RunnerContract
from trio_ollama.runners.contract import LaunchSpec


@pytest.fixture
def factory() -> SimulatedRunnerFactory:
    return SimulatedRunnerFactory(SimulatedHardware(), lambda spec: {"cpu": 1 << 20})


@pytest.fixture
def spec() -> Callable[..., LaunchSpec]:
    def make(**changes: object) -> LaunchSpec:
        return LaunchSpec(**({"model": "tiny", "num_ctx": 32768, "gpu_layers": 0} | changes))  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("name", [name for name in vars(RunnerContract) if name.startswith("test_")])
def test_contract(name: str, factory: SimulatedRunnerFactory, spec: Callable[..., LaunchSpec]) -> None:
    """Each on the fake clock, in three interleavings."""
    test = getattr(RunnerContract(), name)
    for seed in range(3):
        determinism.run(test, factory, spec, seed=seed)


async def test_a_child_works_for_more_calls_than_it_has_slots_only_if_it_is_asked_to(
    autojump_clock: MockClock, factory: SimulatedRunnerFactory, spec: Callable[..., LaunchSpec]
) -> None:
    """Else the check that the scheduler never does that would be blind."""
    runner = factory.spawn(spec())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner.serve)
        await runner.ready(60)
        async with runner.stream("/completion", {}), runner.stream("/completion", {}):
            assert runner.most_at_once == 2
        nursery.cancel_scope.cancel()


async def test_the_simulated_driver_names_processes_as_the_real_one_does(mock_clock: MockClock) -> None:
    """`Hardware.processes`, see also `tests/hardware/test_nvml.py`: nobody can say, or bytes by pid."""
    hardware = SimulatedHardware({"GPU-0": 100})
    assert await hardware.processes("GPU-0") is None
    hardware.tells_processes = True
    assert await hardware.processes("GPU-1") is None
    assert await hardware.processes("GPU-0") == {}
    hardware.take("GPU-0", 10, pid=7)
    hardware.take("GPU-0", 5, pid=8)
    hardware.take("GPU-0", 3)
    assert await hardware.processes("GPU-0") == {7: 10, 8: 5}
    hardware.take("GPU-0", -10, pid=7)
    assert await hardware.processes("GPU-0") == {8: 5}
    hardware.lost.add("GPU-0")
    assert await hardware.processes("GPU-0") is None
    [report] = await hardware.devices() or ()
    assert report.trouble
