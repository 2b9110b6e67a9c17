"""The simulated driver, asked through NVIDIA's own binding: what other tests build on."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.support.fake_nvml import GIB, MIB, NO_COMPILER, FakeGpu, FakeMachine, build, compiler
from tests.support.fake_nvml.build import LIBRARY
from tests.support.real_daemon import wait_until

pytestmark = pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)

A, B = "GPU-aaaa", "GPU-bbbb"
SLICE = "MIG-aaaa-1"
LOST, UNKNOWN = 15, 999


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """Two GPUs, and the binding on the simulated library."""
    machine = FakeMachine(tmp_path / "gpus", library, [FakeGpu(A), FakeGpu(B, total=8 * GIB, name="NVIDIA B")])
    monkeypatch.setenv("FAKE_NVML", str(machine.folder))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library / LIBRARY)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    pynvml.nvmlInit()
    yield machine
    pynvml.nvmlShutdown()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that lives until somebody ends it; not reaped before the test is over."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def allocate(machine: FakeMachine, pid: int, **amounts: int) -> None:
    text = "".join(f"{uuid.replace('_', '-')} {amount}\n" for uuid, amount in amounts.items())
    (machine.folder / "vram" / str(pid)).write_text(text)


def free(uuid: str) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).free)


def test_the_binding_finds_it_by_its_path(tmp_path: Path, library: Path) -> None:
    machine = FakeMachine(tmp_path / "gpus", library, [FakeGpu(A)])
    code = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))"
    asked = subprocess.run([sys.executable, "-c", code], env={**os.environ, **machine.variables}, capture_output=True)
    assert asked.stdout.decode() == f"{A}\n", asked.stderr


def test_every_answer(machine: FakeMachine) -> None:
    machine.change("driver", version="550.1", cuda=12040)
    machine.change(B, pci="00000001:0A:00.0", compute="9.0", others=GIB, reserved=MIB)
    assert pynvml.nvmlSystemGetDriverVersion() == "550.1"
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == pynvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert pynvml.nvmlSystemGetNVMLVersion()
    assert pynvml.nvmlDeviceGetCount() == 2
    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert pynvml.nvmlDeviceGetUUID(handle) == B
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA B"
    assert pynvml.nvmlDeviceGetIndex(handle) == 1
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    assert (pci.busId, pci.domain, pci.bus, pci.busIdLegacy) == ("00000001:0A:00.0", 1, 10, "0001:0A:00.0")
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByPciBusId("00000001:0a:00.0")) == B
    old = pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert (old.total, old.free, old.used) == (8 * GIB, 7 * GIB - MIB, GIB + MIB)
    new = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert (new.total, new.free, new.used, new.reserved) == (8 * GIB, 7 * GIB - MIB, GIB, MIB)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetMigMode(handle)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-cccc")


def test_it_wants_to_be_opened_first(machine: FakeMachine) -> None:
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2


def test_a_changed_file_is_seen_at_once(machine: FakeMachine) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(A)
    machine.change(A, others=6 * GIB)
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).free == 18 * GIB == machine.free(A)
    keys = machine.remove(A)
    assert pynvml.nvmlDeviceGetCount() == 1
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    machine.add(A, keys)
    assert pynvml.nvmlDeviceGetIndex(handle) == 1, "it came back as the last one"
    with machine.without_driver(), pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlDeviceGetCount()


def test_errors_of_one_call_one_device_or_all(machine: FakeMachine) -> None:
    one, other = (pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in (A, B))
    machine.change(A, error__nvmlDeviceGetName=UNKNOWN)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetName(one)
    assert pynvml.nvmlDeviceGetUUID(one) == A
    machine.change(A, error=LOST)
    for call in (pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetMemoryInfo):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call(one)
        assert call(other)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetCount() == 2, "a lost GPU is counted"
    machine.change("driver", error__nvmlDeviceGetCount=UNKNOWN)
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetCount()


def test_answers_that_make_no_sense(machine: FakeMachine) -> None:
    machine.change("driver", count=4_000_000_000)
    machine.change(A, name="\udcff\udcfe", raw__free=2**64 - 1, raw__total=0)
    assert pynvml.nvmlDeviceGetCount() == 4_000_000_000
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(UnicodeDecodeError):
        pynvml.nvmlDeviceGetName(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert (memory.total, memory.free) == (0, 2**64 - 1)


def test_a_hanging_call_is_let_go_when_the_file_says_so(machine: FakeMachine) -> None:
    machine.change("driver", hang__nvmlDeviceGetCount=60)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetCount()))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    assert pynvml.nvmlDeviceGetHandleByIndex(0), "other calls answer"
    machine.change("driver", hang__nvmlDeviceGetCount=None)
    thread.join(10)
    assert answers == [2]


def test_memory_is_gone_with_its_process(machine: FakeMachine, process: subprocess.Popen[bytes]) -> None:
    allocate(machine, process.pid, GPU_aaaa=5 * GIB, GPU_bbbb=GIB)
    assert (free(A), free(B)) == (19 * GIB, 7 * GIB) == (machine.free(A), machine.free(B))
    process.kill()
    for _ in wait_until(10):  # it stays a zombie
        if free(A) == 24 * GIB:
            break
    assert (free(A), free(B)) == (24 * GIB, 8 * GIB) == (machine.free(A), machine.free(B))


def test_a_report_lags(machine: FakeMachine, process: subprocess.Popen[bytes]) -> None:
    lag = 0.5
    machine.change(A, lag=lag)
    path = machine.folder / "vram" / str(process.pid)
    allocate(machine, process.pid, GPU_aaaa=5 * GIB, GPU_bbbb=GIB)
    assert (free(A), free(B)) == (24 * GIB, 7 * GIB)
    assert machine.free(A) == 19 * GIB, "but this is true"
    os.utime(path, (1, 1))
    assert free(A) == 19 * GIB
    process.kill()
    for _ in wait_until(10):
        if free(B) == 8 * GIB:
            break
    assert machine.free(A) == 24 * GIB
    assert free(A) == 19 * GIB
    os.utime(path.with_suffix(".gone"), (1, 1))
    assert free(A) == 24 * GIB


def test_processes_of_a_device(machine: FakeMachine, process: subprocess.Popen[bytes]) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(A)

    def listed(call: Any = pynvml.nvmlDeviceGetComputeRunningProcesses) -> list[tuple[int, int | None]]:
        return sorted((found.pid, found.usedGpuMemory) for found in call(handle))

    assert listed() == []
    allocate(machine, process.pid, GPU_aaaa=5 * GIB)
    machine.change(A, compute_processes=f"1:{GIB}", graphics_processes=f"2:{MIB}")
    assert listed() == [(1, GIB), (process.pid, 5 * GIB)] == listed(pynvml.nvmlDeviceGetComputeRunningProcesses_v2)
    assert listed(pynvml.nvmlDeviceGetGraphicsRunningProcesses) == [(2, MIB)]
    machine.change(A, processes="pids")
    assert listed() == [(1, None), (process.pid, None)]
    machine.change(A, processes="none")
    assert listed() == []


def test_slices_of_a_gpu(machine: FakeMachine, process: subprocess.Popen[bytes]) -> None:
    handle = pynvml.nvmlDeviceGetHandleByUUID(A)
    machine.change(A, mig=1)
    machine.add(SLICE, {"parent": A, "name": "slice", "total": 5 * GIB, "gpu_instance": 3})
    assert pynvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) == 7
    assert pynvml.nvmlDeviceGetCount() == 2, "a slice is no GPU"
    part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    assert pynvml.nvmlDeviceGetUUID(part) == SLICE
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(SLICE)) == SLICE
    assert pynvml.nvmlDeviceIsMigDeviceHandle(part).value == 1
    assert pynvml.nvmlDeviceIsMigDeviceHandle(handle).value == 0
    assert pynvml.nvmlDeviceGetGpuInstanceId(part) == 3
    assert pynvml.nvmlDeviceGetAttributes_v2(part).memorySizeMB == 5 * 1024
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)) == A
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetPciInfo(part)
    allocate(machine, process.pid, **{"MIG_aaaa_1": 2 * GIB})
    assert free(SLICE) == 3 * GIB
    assert free(A) == 22 * GIB, "the GPU's figure has it, too"
