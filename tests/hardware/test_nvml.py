"""GPU discovery with a driver made of Python (runner-and-memory 4.5, R65, I19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from trio_ollama.hardware.contract import DeviceReport
from trio_ollama.hardware.nvml import LOST, Nvml
from trio_ollama.hardware.visible import HIDDEN, select_visible

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


class GpuIsLost(NVMLError):
    pass


@dataclass
class Gpu:
    uuid: str
    total: int = 24 * GIB
    free: int = 20 * GIB
    name: str | bytes = "NVIDIA Test"
    bus: str | bytes = "00000000:01:00.0"
    fails: dict[str, Exception] = field(default_factory=dict)
    mig: bool = False
    parts: list[Gpu | None] = field(default_factory=list)
    """MIG devices; None is a number that none has."""
    instance: int = 0
    graphics: dict[int, int | None] = field(default_factory=dict)
    compute: dict[int, int | None] = field(default_factory=dict)


class FakeNvml:
    """As much of the module `pynvml` as we use. `fails` maps a function's short name to what it raises."""

    NVMLError = NVMLError
    NVMLError_LibraryNotFound = LibraryNotFound
    NVMLError_DriverNotLoaded = DriverNotLoaded
    NVMLError_NotSupported = NotSupported
    NVMLError_NoPermission = NoPermission
    NVMLError_GpuIsLost = GpuIsLost

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = list(gpus)
        self.fails: dict[str, Exception] = {}
        self.sessions: list[str] = []
        self.count: int | None = None

    def nvmlInit(self) -> None:
        self._check("Init")
        self.sessions.append("open")

    def nvmlShutdown(self) -> None:
        self.sessions.append("close")
        self._check("Shutdown")

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._check("Version")
        return 12080

    def nvmlSystemGetDriverVersion(self) -> str:
        self._check("Driver")
        return "570.1"

    def nvmlDeviceGetCount(self) -> int:
        self._check("Count")
        return len(self.gpus) if self.count is None else self.count

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

    def nvmlDeviceGetMigMode(self, gpu: Gpu) -> list[int]:
        return [int(self._of(gpu, "Mig").mig)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: Gpu) -> int:
        return len(gpu.parts)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Gpu, index: int) -> Gpu:
        part = gpu.parts[index]
        if part is None:
            raise NVMLError
        return part

    def nvmlDeviceGetGpuInstanceId(self, part: Gpu) -> int:
        return part.instance

    def nvmlDeviceGetComputeInstanceId(self, part: Gpu) -> int:
        return 0

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: Gpu) -> list[Any]:
        return self._processes(self._of(gpu, "Processes").graphics)

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: Gpu) -> list[Any]:
        return self._processes(self._of(gpu, "Processes").compute)

    @staticmethod
    def _processes(held: dict[int, int | None]) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=amount) for pid, amount in held.items()]

    def _check(self, name: str) -> None:
        if name in self.fails:
            raise self.fails[name]

    def _of(self, gpu: Gpu, name: str) -> Gpu:
        if name in gpu.fails:
            raise gpu.fails[name]
        return gpu


def session(nvml: FakeNvml, visible: str | None = None) -> Nvml:
    return Nvml(visible, library=lambda: nvml)


def used(reports: Sequence[DeviceReport] | None) -> list[str]:
    return [report.id for report in reports or () if not report.trouble]


def troubles(reports: Sequence[DeviceReport] | None) -> dict[str, str]:
    return {report.id: report.trouble for report in reports or () if report.trouble}


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
            driver_version="570.1",
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
            driver_version="570.1",
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


@pytest.mark.parametrize("error", [NVMLError(), GpuIsLost(), ValueError("garbage")])
@pytest.mark.parametrize("name", ["Handle", "UUID", "Name", "MemoryInfo", "PciInfo", "Compute", "Mig"])
def test_one_broken_gpu_takes_no_other_away(name: str, error: Exception) -> None:
    """I19, R65: what it does not tell is as before; without that, it is unknown and not used."""
    broken = Gpu("GPU-b", bus="00000000:02:00.0", fails={name: error})
    nvml = FakeNvml(Gpu("GPU-a"), broken)
    first = session(nvml).query()
    assert used(first)[0] == "GPU-a"
    assert all(report.total > 0 for report in first or () if not report.trouble)
    broken.fails.clear()
    gpus = session(nvml)
    before = gpus.query()
    assert used(before) == ["GPU-a", "GPU-b"]
    broken.fails[name] = error
    after = gpus.query()
    if isinstance(error, GpuIsLost):
        assert used(after) == ["GPU-a"]
        assert troubles(after) == {"GPU-b": LOST}
    elif name in ("Handle", "UUID"):
        assert list(troubles(after)) == ["GPU-b"]
    elif name == "MemoryInfo":
        [_, report] = after or ()
        assert (report.id, report.total, report.free) == ("GPU-b", 24 * GIB, None)
    else:
        assert after == before
    broken.fails.clear()
    assert gpus.query() == before


def test_a_lost_gpu_is_asked_for_in_a_new_session_first() -> None:
    """Handles of an old session do not survive a reset."""
    nvml = FakeNvml(Gpu("GPU-a"))
    gpus = session(nvml)
    assert gpus.query()
    nvml.gpus[0].fails["MemoryInfo"] = GpuIsLost()
    init = nvml.nvmlInit

    def reset() -> None:
        init()
        nvml.gpus[0].fails.clear()

    nvml.nvmlInit = reset  # type: ignore[method-assign]
    assert troubles(gpus.query()) == {}
    assert nvml.sessions == ["open", "close", "open"]


def test_a_gpu_that_is_not_counted_any_more_is_lost() -> None:
    """R65. The indices of the user's filter keep their meaning."""
    nvml = FakeNvml(*(Gpu(f"GPU-{name}", bus=f"00000000:0{name}:00.0") for name in (1, 2, 3)))
    gpus = session(nvml, visible="1,0")
    assert used(gpus.query()) == ["GPU-2", "GPU-1"]
    del nvml.gpus[0]
    reports = gpus.query()
    assert used(reports) == ["GPU-2"]
    assert troubles(reports) == {"GPU-1": LOST, "GPU-3": HIDDEN}


@pytest.mark.parametrize("figures", [(0, 0), (1 << 60, 1), (5, 9)])
def test_garbage_is_unknown(figures: tuple[int, int]) -> None:
    nvml = FakeNvml(Gpu("GPU-a"), Gpu("GPU-b", total=figures[0], free=figures[1]))
    assert used(session(nvml).query()) == ["GPU-a"]
    nvml.gpus[1].uuid = "\x00\x01"
    assert used(session(nvml).query()) == ["GPU-a"]
    nvml.count = 1 << 30
    assert session(nvml).query() is None


def test_a_driver_that_tells_nothing_of_any_gpu_is_unknown() -> None:
    nvml = FakeNvml(*(Gpu(f"GPU-{name}", fails={"MemoryInfo": NVMLError()}) for name in "ab"))
    assert session(nvml).query() is None
    assert nvml.sessions == ["open", "close"]


def cut(*parts: Gpu | None, uuid: str = "GPU-m", bus: str = "00000000:02:00.0") -> Gpu:
    return Gpu(uuid, bus=bus, mig=True, parts=list(parts), fails={"Compute": NVMLError()})


def test_a_gpu_in_mig_mode_is_its_parts() -> None:
    nvml = FakeNvml(
        Gpu("GPU-a"),
        cut(Gpu("MIG-x", total=10 * GIB, free=9 * GIB, instance=7), None, Gpu("MIG-y", total=5 * GIB, free=4 * GIB)),
    )
    [whole, x, y] = session(nvml).query() or ()
    assert (whole.id, whole.alone) == ("GPU-a", False)
    assert (x.id, x.total, x.free, x.alone, x.pci_id) == ("MIG-x", 10 * GIB, 9 * GIB, True, "0000:02:00.0")
    assert x.alias == "MIG-GPU-m/7/0"
    assert (y.id, y.alias) == ("MIG-y", "MIG-GPU-m/0/0")


def test_a_gpu_in_mig_mode_without_parts_cannot_be_used() -> None:
    nvml = FakeNvml(Gpu("GPU-a"), cut(None, None))
    assert used(session(nvml).query()) == ["GPU-a"]
    assert list(troubles(session(nvml).query())) == ["GPU-m"]


def test_a_gpu_that_is_cut_into_parts_meanwhile_is_not_lost() -> None:
    gpu = Gpu("GPU-m")
    gpus = session(FakeNvml(gpu))
    assert used(gpus.query()) == ["GPU-m"]
    gpu.mig, gpu.parts = True, [Gpu("MIG-x")]
    assert [report.id for report in gpus.query() or ()] == ["MIG-x"]
    gpu.mig = False
    assert [report.id for report in gpus.query() or ()] == ["GPU-m"]


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ["MIG-x", "MIG-y", "GPU-b"]),
        ("0", ["MIG-x"]),  # as CUDA has it
        ("1,0", ["GPU-b", "MIG-x"]),
        ("MIG-y", ["MIG-y"]),
        ("mig-y,GPU-b", ["MIG-y", "GPU-b"]),
        ("MIG-GPU-m/3/0", ["MIG-y"]),
        ("MIG-GPU-m/9/0", []),
        ("MIG-", []),
        ("GPU-m", []),
    ],
)
def test_the_users_filter_with_parts(visible: str | None, ids: list[str]) -> None:
    nvml = FakeNvml(cut(Gpu("MIG-x", instance=1), Gpu("MIG-y", instance=3)), Gpu("GPU-b"))
    assert used(session(nvml, visible).query()) == ids


def test_processes_count_for_their_sessions_leader() -> None:
    """What a runner's grandchild holds is the runner's; a process with both kinds of context counts once."""
    leaders = {11: 10, 10: 10, 20: 20}

    def session_of(pid: int) -> int:
        if pid not in leaders:
            raise ProcessLookupError
        return leaders[pid]

    gpu = Gpu("GPU-a", graphics={10: 5, 20: None}, compute={10: 5, 11: 7, 30: 1})
    gpus = Nvml(library=lambda: FakeNvml(gpu), session_of=session_of)
    assert gpus.processes("GPU-a") is None  # not seen yet
    gpus.query()
    assert gpus.processes("GPU-a") == {10: 12, 20: None, 30: 1}
    assert gpus.processes("GPU-b") is None
    gpu.fails["Processes"] = NotSupported()
    assert gpus.processes("GPU-a") is None


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
    for _ in range(2):
        assert troubles(gpus.query()) == {"GPU-a": HIDDEN}


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
