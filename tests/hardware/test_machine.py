"""Queries run in threads: they may be left behind, but never pile up (I19, R65)."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.hardware.test_nvml import FakeNvml, Gpu, NotSupported, NVMLError
from trio_ollama.hardware.contract import DeviceReport, DevicesUnknownError, Hardware, MemoryReport, RunnerDevice
from trio_ollama.hardware.machine import EXCLUDED, Machine, composed_filter, may_have_gpus
from trio_ollama.hardware.nvml import Nvml
from trio_ollama.hardware.system import SystemMemory
from trio_ollama.hardware.usable import NOT_FOR_RUNNER
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


async def test_a_forced_cpu_backend_uses_no_gpu() -> None:
    machine = Machine.from_settings(Settings(llm_library="CPU_avx2"))
    with trio.fail_after(30):
        devices = await machine.devices()
        assert all(device.trouble for device in devices or ())
        assert await machine.memory() is not None


class FakeBuild:
    """A `RunnerBuild`: each question gets the next answer, the last one for ever."""

    def __init__(self, *answers: tuple[RunnerDevice, ...] | Exception) -> None:
        self.answers = list(answers)
        self.questions = 0
        self.version = 1

    def stamp(self) -> object:
        return self.version

    async def devices(self) -> tuple[RunnerDevice, ...]:
        self.questions += 1
        await trio.lowlevel.checkpoint()
        answer = self.answers[min(self.questions, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


CUDA = RunnerDevice("CUDA0", "cuda", "NVIDIA Test", 24 << 30, 1 << 30, "0000:01:00.0")
VULKAN = RunnerDevice("Vulkan0", "vulkan", "AMD Radeon", 16 << 30, 1 << 30)


def with_build(build: FakeBuild, *gpus: Gpu, suspected: bool = True, library: str = "") -> Machine:
    nvml = FakeNvml(*gpus)
    return Machine(
        Nvml(library=lambda: nvml),
        FixedMemory(MemoryReport(9, 5)),
        build,
        suspected=lambda: suspected,
        library=library,
    )


async def usable_ids(machine: Machine) -> list[str]:
    return [device.id for device in await machine.devices() or () if not device.trouble]


async def test_a_build_is_asked_once_for_gpus_that_the_driver_watches(mock_clock: MockClock) -> None:
    build = FakeBuild((CUDA,))
    machine = with_build(build, Gpu("GPU-a"), Gpu("GPU-b", bus="00000000:02:00.0"))
    await machine.prepare()
    for _ in range(3):
        mock_clock.jump(100)
        [a, b] = await machine.devices() or ()
        assert (a.id, a.free, a.trouble) == ("GPU-a", 20 << 30, "")
        assert (b.id, b.trouble) == ("GPU-b", NOT_FOR_RUNNER)
    assert build.questions == 1


async def test_a_machine_without_any_sign_of_a_gpu_asks_nobody() -> None:
    build = FakeBuild((CUDA,))
    machine = with_build(build, suspected=False)
    await machine.prepare()
    assert await machine.devices() == ()
    assert build.questions == 0


async def test_a_driver_that_answers_late_makes_it_a_question_again() -> None:
    build = FakeBuild((CUDA,))
    nvml = FakeNvml()
    nvml.fails["Init"] = NVMLError()
    machine = Machine(Nvml(library=lambda: nvml), FixedMemory(None), build, suspected=lambda: False)
    await machine.prepare()
    assert await machine.devices() is None
    nvml.fails.clear()
    nvml.gpus.append(Gpu("GPU-a"))
    assert await usable_ids(machine) == ["GPU-a"]
    assert build.questions == 1


async def test_figures_that_only_the_build_has_are_asked_for_again(mock_clock: MockClock) -> None:
    """At most once a second: each question is a process."""
    build = FakeBuild((VULKAN,), (replace(VULKAN, free=2 << 30),), DevicesUnknownError("no"))
    machine = with_build(build)
    await machine.prepare()
    assert [device.free for device in await machine.devices() or ()] == [1 << 30]
    mock_clock.jump(1)
    for _ in range(3):
        assert [device.free for device in await machine.devices() or ()] == [2 << 30]
    assert build.questions == 2
    mock_clock.jump(1)
    for _ in range(30):  # a question that fails leaves what was known, and is repeated ever more seldom
        assert [device.free for device in await machine.devices() or ()] == [2 << 30]
        mock_clock.jump(1)
    assert build.questions == 2 + 4


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_build_that_does_not_tell_uses_no_gpu_until_it_does(mock_clock: MockClock, hangs: bool) -> None:
    class Hanging(FakeBuild):
        async def devices(self) -> tuple[RunnerDevice, ...]:
            if self.questions == 0 and hangs:
                self.questions += 1
                mock_clock.jump(30)
                await trio.sleep_forever()
            return await super().devices()

    build = Hanging(DevicesUnknownError("it crashed"), (CUDA,))
    machine = with_build(build, Gpu("GPU-a"))
    await machine.prepare()
    [gpu] = await machine.devices() or ()
    assert gpu.trouble.startswith("the runner's build did not tell its devices: ")
    assert gpu.trouble.endswith("no answer within 30 s" if hangs else "it crashed")
    mock_clock.jump(2)
    assert await usable_ids(machine) == ["GPU-a"]


async def test_a_build_that_is_replaced_is_asked_anew() -> None:
    build = FakeBuild((), (CUDA,))
    machine = with_build(build, Gpu("GPU-a"))
    await machine.prepare()
    assert await usable_ids(machine) == []
    build.version = 2
    assert await usable_ids(machine) == ["GPU-a"]


@pytest.mark.parametrize(("library", "ids"), [("vulkan", ["vulkan:0"]), ("cuda", ["GPU-a"]), ("rocm", [])])
async def test_one_library_may_be_all_that_is_wanted(library: str, ids: list[str]) -> None:
    machine = with_build(FakeBuild((VULKAN, CUDA)), Gpu("GPU-a"), library=library)
    await machine.prepare()
    assert await usable_ids(machine) == ids
    everything = await machine.devices() or ()
    assert {device.trouble for device in everything} == {"", EXCLUDED} if ids else {EXCLUDED}
    assert [bool(device.trouble) for device in everything] == sorted(bool(device.trouble) for device in everything)


async def test_processes_are_asked_of_the_driver() -> None:
    machine = Machine(Nvml(library=lambda: FakeNvml(Gpu("GPU-a", compute={1: 5}))), FixedMemory(None))
    await machine.devices()
    assert list((await machine.processes("GPU-a") or {}).values()) == [5]
    assert await machine.processes("vulkan:0") is None


def test_signs_of_a_gpu(tmp_path: Path) -> None:
    assert may_have_gpus(tmp_path, "darwin")
    assert not may_have_gpus(tmp_path, "linux")
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "card0").touch()
    assert not may_have_gpus(tmp_path, "linux")
    (tmp_path / "dri" / "renderD128").touch()
    assert may_have_gpus(tmp_path, "linux")


@pytest.mark.parametrize(
    ("rocr", "hip", "composed"),
    [
        (None, None, None),
        ("1,2", None, "1,2"),
        (None, "1", "1"),
        ("4,GPU-x,6", "1,2", "GPU-x,6"),
        ("4", "3", ""),
    ],
)
def test_filters_of_rocm_count_one_within_the_other(rocr: str | None, hip: str | None, composed: str | None) -> None:
    assert composed_filter(rocr, hip) == composed
