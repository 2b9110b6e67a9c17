"""GPU discovery with a driver made of Python (runner-and-memory 4.5, R65, I19)."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from trio_ollama.hardware.contract import DeviceReport
from trio_ollama.hardware.nvml import Nvml, select_visible

GIB = 1 << 30


class NVMLError(Exception):
    pass


class LibraryNotFound(NVMLError):
    pass


class DriverNotLoaded(NVMLError):
    pass


class NotSupported(NVMLError):
    pass


class NoPermission(NVMLError):
    pass


@dataclass
class Gpu:
    uuid: str
    total: int = 24 * GIB
    free: int = 20 * GIB
    name: str | bytes = "NVIDIA Test"
    bus: str | bytes = "00000000:01:00.0"
    fails: dict[str, NVMLError] = field(default_factory=dict)


class FakeNvml:
    """As much of the module `pynvml` as we use. `fails` maps a function's short name to what it raises."""

    NVMLError = NVMLError
    NVMLError_LibraryNotFound = LibraryNotFound
    NVMLError_DriverNotLoaded = DriverNotLoaded
    NVMLError_NotSupported = NotSupported
    NVMLError_NoPermission = NoPermission

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = list(gpus)
        self.fails: dict[str, NVMLError] = {}
        self.sessions: list[str] = []

    def nvmlInit(self) -> None:
        self._check("Init")
        self.sessions.append("open")

    def nvmlShutdown(self) -> None:
        self.sessions.append("close")
        self._check("Shutdown")

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._check("Version")
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        self._check("Count")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self._of(self.gpus[index], "Handle")

    def nvmlDeviceGetUUID(self, gpu: Gpu) -> str:
        return self._of(gpu, "UUID").uuid

    def nvmlDeviceGetName(self, gpu: Gpu) -> str | bytes:
        return self._of(gpu, "Name").name

    def nvmlDeviceGetMemoryInfo(self, gpu: Gpu) -> Any:
        self._of(gpu, "MemoryInfo")
        return SimpleNamespace(total=gpu.total, free=gpu.free, used=gpu.total - gpu.free)

    def nvmlDeviceGetPciInfo(self, gpu: Gpu) -> Any:
        return SimpleNamespace(busId=self._of(gpu, "PciInfo").bus)

    def nvmlDeviceGetCudaComputeCapability(self, gpu: Gpu) -> tuple[int, int]:
        self._of(gpu, "Compute")
        return (9, 0)

    def _check(self, name: str) -> None:
        if name in self.fails:
            raise self.fails[name]

    def _of(self, gpu: Gpu, name: str) -> Gpu:
        if name in gpu.fails:
            raise gpu.fails[name]
        return gpu


def session(nvml: FakeNvml, visible: str | None = None) -> Nvml:
    return Nvml(visible, library=lambda: nvml)


def test_every_field_of_a_report() -> None:
    nvml = FakeNvml(Gpu("GPU-a", name=b"NVIDIA A", bus=b"00000001:0A:00.0"), Gpu("GPU-b"))
    assert session(nvml).query() == (
        DeviceReport(
            id="GPU-a",
            library="cuda",
            name="NVIDIA A",
            total=24 * GIB,
            free=20 * GIB,
            pci_id="0001:0a:00.0",
            compute=(9, 0),
            driver=(12, 8),
        ),
        DeviceReport(
            id="GPU-b",
            library="cuda",
            name="NVIDIA Test",
            total=24 * GIB,
            free=20 * GIB,
            pci_id="0000:01:00.0",
            compute=(9, 0),
            driver=(12, 8),
        ),
    )


def test_the_session_is_kept_and_figures_are_fresh() -> None:
    nvml = FakeNvml(Gpu("GPU-a"))
    gpus = session(nvml)
    assert gpus.query() is not None
    nvml.gpus[0].free = 5
    [report] = gpus.query() or ()
    assert report.free == 5
    assert nvml.sessions == ["open"]


def test_no_binding_means_no_gpus() -> None:
    def missing() -> Any:
        raise ImportError

    assert Nvml(library=missing).query() == ()


@pytest.mark.parametrize("error", [LibraryNotFound(), DriverNotLoaded()])
def test_no_driver_means_no_gpus(error: NVMLError) -> None:
    nvml = FakeNvml()
    nvml.fails["Init"] = error
    assert session(nvml).query() == ()


@pytest.mark.parametrize("name", ["Init", "Version", "Count"])
def test_a_failed_query_is_unknown_and_the_next_one_starts_afresh(name: str) -> None:
    nvml = FakeNvml(Gpu("GPU-a"))
    nvml.fails[name] = NVMLError()
    gpus = session(nvml)
    assert gpus.query() is None
    nvml.fails.clear()
    reports = gpus.query()
    assert reports is not None
    assert len(reports) == 1
    assert nvml.sessions == (["open"] if name == "Init" else ["open", "close", "open"])


@pytest.mark.parametrize("name", ["Handle", "UUID", "Name", "MemoryInfo", "PciInfo", "Compute"])
def test_a_partial_answer_is_unknown(name: str) -> None:
    nvml = FakeNvml(Gpu("GPU-a"), Gpu("GPU-b", fails={name: NVMLError()}))
    nvml.fails["Shutdown"] = NVMLError()
    assert session(nvml).query() is None


@pytest.mark.parametrize("what", ["driver", "devices"])
def test_gpus_that_vanish_are_unknown_not_gone(what: str) -> None:
    nvml = FakeNvml(Gpu("GPU-a"))
    gpus = session(nvml)
    assert gpus.query()
    if what == "driver":
        nvml.fails["Count"] = DriverNotLoaded()
    else:
        nvml.gpus.clear()
    assert gpus.query() is None
    assert gpus.query() is None


def test_a_gpu_of_another_container_is_left_out() -> None:
    nvml = FakeNvml(Gpu("GPU-a", fails={"Handle": NoPermission()}), Gpu("GPU-b"))
    assert [report.id for report in session(nvml).query() or ()] == ["GPU-b"]


def test_a_gpu_without_memory_of_its_own_is_integrated() -> None:
    nvml = FakeNvml(Gpu("GPU-a", fails={"MemoryInfo": NotSupported()}))
    [report] = session(nvml).query() or ()
    assert (report.integrated, report.total, report.free) == (True, 0, None)


def test_hidden_gpus_are_not_vanished_ones() -> None:
    gpus = session(FakeNvml(Gpu("GPU-a")), visible="")
    assert gpus.query() == ()
    assert gpus.query() == ()


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ["GPU-aa1", "GPU-aa2", "GPU-b"]),
        ("", []),
        ("-1", []),
        ("0", ["GPU-aa1"]),
        ("2,0", ["GPU-b", "GPU-aa1"]),
        (" 1 , 2 ", ["GPU-aa2", "GPU-b"]),
        ("0,-1,1", ["GPU-aa1"]),
        ("0,9,1", ["GPU-aa1"]),
        ("0,x,1", ["GPU-aa1"]),
        ("0,,1", ["GPU-aa1"]),
        ("0,0,1", ["GPU-aa1"]),
        ("GPU-aa2", ["GPU-aa2"]),
        ("gpu-B,GPU-aa1", ["GPU-b", "GPU-aa1"]),
        ("GPU-aa", []),  # two of them
        ("GPU-b,0", ["GPU-b", "GPU-aa1"]),
        ("NoDevFiles", []),
        ("١", []),
    ],
)
def test_the_users_filter(visible: str | None, ids: list[str]) -> None:
    devices = [
        DeviceReport(id=uuid, library="cuda", name="", total=1, free=1) for uuid in ("GPU-aa1", "GPU-aa2", "GPU-b")
    ]
    assert [device.id for device in select_visible(devices, visible)] == ids


def test_the_real_binding_has_the_names_we_use() -> None:
    import pynvml

    for name in vars(FakeNvml):
        if name.startswith(("nvml", "NVMLError")):
            assert hasattr(pynvml, name), name
    reports = Nvml().query()
    assert reports is None or all(isinstance(report, DeviceReport) for report in reports)
