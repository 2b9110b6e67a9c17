"""Queries run in threads: they may be left behind, but never pile up (I19, R65)."""

from __future__ import annotations

import threading

import pytest
import trio

from tests.hardware.test_nvml import FakeNvml, Gpu, NotSupported
from trio_ollama.hardware.contract import DeviceReport, Hardware, MemoryReport
from trio_ollama.hardware.machine import Machine
from trio_ollama.hardware.nvml import Nvml
from trio_ollama.hardware.system import SystemMemory
from trio_ollama.settings import Settings


class FixedMemory(SystemMemory):
    def __init__(self, report: MemoryReport | None) -> None:
        self.report = report

    def read(self) -> MemoryReport | None:
        return self.report


async def test_the_machine_is_the_contracts_hardware() -> None:
    machine: Hardware = Machine(Nvml(library=lambda: FakeNvml(Gpu("GPU-a"))), FixedMemory(MemoryReport(9, 5)))
    assert [device.id for device in await machine.devices() or ()] == ["GPU-a"]
    assert await machine.memory() == MemoryReport(9, 5)


@pytest.mark.parametrize("memory", [MemoryReport(total=9, free=5), None])
async def test_a_gpu_that_shares_memory_reports_the_systems(memory: MemoryReport | None) -> None:
    nvml = FakeNvml(Gpu("GPU-a"), Gpu("GPU-b", fails={"MemoryInfo": NotSupported()}))
    machine = Machine(Nvml(library=lambda: nvml), FixedMemory(memory))
    devices = await machine.devices()
    if memory is None:
        assert devices is None
    else:
        assert devices is not None
        assert [(device.total, device.free, device.integrated) for device in devices] == [
            (24 << 30, 20 << 30, False),
            (9, 5, True),
        ]


async def test_a_stuck_driver_costs_one_thread_however_often_it_is_asked() -> None:
    entered, release = threading.Semaphore(0), threading.Event()
    queries = []

    class Stuck(Nvml):
        def query(self) -> tuple[DeviceReport, ...] | None:
            queries.append(threading.current_thread())
            entered.release()
            release.wait(30)
            return ()

    machine = Machine(Stuck(), FixedMemory(MemoryReport(9, 5)))
    try:
        with trio.move_on_after(30) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(machine.devices)
                await trio.to_thread.run_sync(entered.acquire)
                nursery.cancel_scope.cancel()
        assert not scope.cancelled_caught  # the query was left behind at once
        for _ in range(3):
            with trio.move_on_after(0.01) as scope:
                await machine.devices()
            assert scope.cancelled_caught
        assert await machine.memory() == MemoryReport(9, 5)  # the other kind goes on
        assert len(queries) == 1
    finally:
        release.set()
    with trio.fail_after(30):
        assert await machine.devices() == ()
    assert len(queries) == 2


async def test_a_forced_cpu_backend_hides_all_gpus() -> None:
    machine = Machine.from_settings(Settings(llm_library="CPU_avx2"))
    with trio.fail_after(30):
        assert await machine.devices() in ((), None)
        assert await machine.memory() is not None
