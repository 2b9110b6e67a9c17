"""A machine with a real NVIDIA GPU against what we make of it: `python -m tests.hardware.check_real_gpu`.

Prints discovery, memory, the user's filters and who holds what, and compares them with `nvidia-smi` and with CUDA
itself, each as far as it is there. Half a minute, 1 GiB of GPU memory. Exit status 1 if anything differs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from trio_ollama.hardware.contract import DeviceReport, MachineReport, RunnerDevice
from trio_ollama.hardware.describe import machine_lines
from trio_ollama.hardware.nvml import Nvml
from trio_ollama.hardware.system import SystemMemory
from trio_ollama.hardware.usable import usable
from trio_ollama.hardware.visible import select_visible

GIB = 1 << 30
MIB = 1 << 20
PATIENCE = 15.0
"""Seconds for a driver to show what has changed."""

CUDA = """
import ctypes, json, sys, uuid
amount = int(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    if status := getattr(cuda, name)(*arguments):
        sys.exit(f"{name}: error {status}")
call("cuInit", 0)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
found = []
for device in range(count.value):
    name, pci = ctypes.create_string_buffer(100), ctypes.create_string_buffer(20)
    total, raw = ctypes.c_size_t(), (ctypes.c_ubyte * 16)()
    call("cuDeviceGetName", name, 100, device)
    call("cuDeviceGetPCIBusId", pci, 20, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    call("cuDeviceGetUuid", raw, device)
    found.append([name.value.decode(), pci.value.decode().lower(), total.value, str(uuid.UUID(bytes=bytes(raw)))])
if amount:
    context, pointer = ctypes.c_void_p(), ctypes.c_ulonglong()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(amount))
print(json.dumps(found), flush=True)
if amount:
    sys.stdin.read()
"""
"""A process that asks CUDA for its devices, and then holds memory on the first of them until its stdin closes."""


class Check:
    """Prints every finding and counts those that are not as they should be."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def say(self, text: str) -> None:
        print(f"      {text}", flush=True)

    def that(self, good: bool, text: str) -> None:
        print(f"{'ok  ' if good else 'BAD '}  {text}", flush=True)
        if not good:
            self.failures.append(text)


def main() -> int:
    check = Check()
    nvml = Nvml()
    begun = time.perf_counter()
    gpus = nvml.query()
    check.say(f"first query: {1000 * (time.perf_counter() - begun):.1f} ms")
    if not gpus:
        print("no NVIDIA GPU here" if gpus == () else "the NVIDIA driver does not answer")
        return 1
    begun = time.perf_counter()
    nvml.query()
    check.say(f"later query: {1000 * (time.perf_counter() - begun):.1f} ms")
    for _, line in machine_lines(MachineReport(gpus, SystemMemory().read())):
        check.say(line)
    fields(check, gpus)
    filters(check, gpus)
    smi(check, gpus)
    try:
        seen = cuda(None)
    except RuntimeError as error:
        check.say(f"CUDA cannot be asked, so that the rest is left out: {error}")
    else:
        agreement(check, gpus, seen)
        memory(check, nvml, gpus[0])
    print(f"{len(check.failures)} differ" if check.failures else "all as it should be")
    return 1 if check.failures else 0


def fields(check: Check, gpus: tuple[DeviceReport, ...]) -> None:
    for gpu in gpus:
        check.that(not gpu.trouble, f"{gpu.id}: no trouble{gpu.trouble and ': ' + gpu.trouble}")
        check.that(gpu.id.startswith(("GPU-", "MIG-")), f"{gpu.id}: a UUID")
        check.that(bool(gpu.name and gpu.pci_id and gpu.driver_version), f"{gpu.id}: name, place and driver")
        check.that(gpu.compute >= (3, 0) and gpu.driver >= (10, 0), f"{gpu.id}: compute {gpu.compute}, {gpu.driver}")
        check.that(gpu.integrated or 0 <= (gpu.free or 0) <= gpu.total, f"{gpu.id}: {gpu.free} of {gpu.total} free")


def filters(check: Check, gpus: tuple[DeviceReport, ...]) -> None:
    """As CUDA_VISIBLE_DEVICES: by number, by UUID, by the beginning of one."""
    for gpu in gpus:
        for token in (gpu.id, gpu.id[:12], *([str(gpus.index(gpu))] if not gpu.alone else [])):
            chosen = select_visible(gpus, token)
            unique = sum(other.id.startswith(token) for other in gpus) <= 1
            check.that(not unique or [one.id for one in chosen] == [gpu.id], f"filter {token}: {gpu.id}")
    check.that(select_visible(gpus, "-1") == select_visible(gpus, "") == (), "filters that hide everything")


def smi(check: Check, gpus: tuple[DeviceReport, ...]) -> None:
    if shutil.which("nvidia-smi") is None:
        check.say("no nvidia-smi to compare with")
        return
    query = "uuid,name,memory.total,pci.bus_id,driver_version,compute_cap"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    known = {gpu.id: gpu for gpu in gpus if not gpu.alone}
    for line in filter(None, text.splitlines()):
        uuid, name, total, pci, driver, compute = (part.strip() for part in line.split(","))
        if (gpu := known.pop(uuid, None)) is None:
            check.say(f"nvidia-smi has {uuid} as well: in MIG mode?")
            continue
        check.that(gpu.name == name and gpu.driver_version == driver, f"{uuid}: {name}, driver {driver}")
        check.that(gpu.pci_id == pci.lower()[-12:], f"{uuid}: {gpu.pci_id} is {pci}")
        check.that("{}.{}".format(*gpu.compute) == compute, f"{uuid}: compute {compute}")
        check.that(not total.isdecimal() or gpu.total // MIB == int(total), f"{uuid}: {gpu.total} are {total} MiB")
    check.that(not known, f"nvidia-smi has all of ours{known and ' but ' + ', '.join(known)}")


def cuda(visible: str | None) -> list[tuple[str, str, int, str]]:
    """(name, place, bytes, UUID) of the devices that a CUDA process sees. Raises RuntimeError."""
    done = subprocess.run(
        [sys.executable, "-c", CUDA, "0"],
        env=environment(visible),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
    return [(name, pci, total, uuid) for name, pci, total, uuid in json.loads(done.stdout)]


def environment(visible: str | None) -> dict[str, str]:
    child = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return child | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


def agreement(check: Check, gpus: tuple[DeviceReport, ...], seen: list[tuple[str, str, int, str]]) -> None:
    """What CUDA sees is what we would plan with, and a UUID shows a child exactly its GPU."""
    for name, pci, total, uuid in seen:
        check.say(f"CUDA: {name}, {pci}, {total} bytes, {uuid}")
    wholes = [gpu for gpu in gpus if not gpu.alone]
    for place in (True, False):
        found = [
            RunnerDevice(f"CUDA{number}", "cuda", name, total, total, pci if place else "")
            for number, (name, pci, total, _) in enumerate(seen)
        ]
        used = [gpu.id for gpu in usable(gpus, found, {}) if not gpu.trouble]
        check.that(used == [gpu.id for gpu in gpus], f"matched {'by place' if place else 'by name and size'}: {used}")
    for gpu in gpus:
        shown = cuda(gpu.id)
        check.that(len(shown) == 1, f"{gpu.id} shows a child {len(shown)} device")
        if gpu in wholes and shown:
            check.that(f"GPU-{shown[0][3]}" == gpu.id, f"{gpu.id} shows a child {shown[0][3]}")
    check.that(_none_seen(), "the empty filter shows a child no device")


def _none_seen() -> bool:
    try:
        return cuda("") == []
    except RuntimeError as error:
        return "100" in str(error)  # CUDA_ERROR_NO_DEVICE


@contextmanager
def holding(gpu: DeviceReport, amount: int) -> Iterator[int]:
    """A process in a session of its own that holds `amount` bytes on the GPU; its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", CUDA, str(amount)],
        env=environment(gpu.id),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("it could not take memory")
            yield process.pid
        finally:
            process.kill()


def memory(check: Check, nvml: Nvml, gpu: DeviceReport) -> None:
    """1 GiB is taken and given back: what the driver's figures show of it, and when."""

    def free() -> int:
        return next((now.free or 0 for now in nvml.query() or () if now.id == gpu.id), 0)

    before = free()
    if before < 2 * GIB:
        check.say(f"{gpu.id} has no 2 GiB free: who holds what is left out")
        return
    with holding(gpu, GIB) as pid:
        after = until(lambda: before - free() >= GIB, check, "the figures show what is held")
        check.that(after >= 0, f"{gpu.id}: {(before - free()) / MIB:.0f} MiB less are free with 1 GiB held")
        listed = nvml.processes(gpu.id)
        check.say(f"processes: {listed}; ours is {pid}")
        if listed is None or pid not in listed:
            check.say("the driver does not name our process (a container of its own?): free memory has to tell")
        else:
            held = listed[pid]
            check.that(held is None or GIB <= held <= 2 * GIB, f"our process holds {held} bytes")
    until(lambda: pid not in (nvml.processes(gpu.id) or {}), check, "the process is gone from the list")
    back = until(lambda: before - free() <= GIB // 4, check, "the memory is back")
    check.that(back >= 0, f"{gpu.id}: {(before - free()) / MIB:.0f} MiB less are free than before")
    _whose(check, nvml.processes(gpu.id))


def _whose(check: Check, listed: Mapping[int, int | None] | None) -> None:
    check.say(f"processes now: {listed}")


def until(true: Callable[[], bool], check: Check, what: str) -> float:
    """Seconds until it is true; -1 if it does not become so."""
    begun = time.perf_counter()
    while (passed := time.perf_counter() - begun) < PATIENCE:
        if true():
            check.say(f"{what} after {passed:.2f} s")
            return passed
        threading.Event().wait(0.02)
    check.say(f"{what}: not within {PATIENCE:g} s")
    return -1.0


if __name__ == "__main__":
    sys.exit(main())
