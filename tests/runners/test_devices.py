"""The runner's build is asked which devices it can use: its answers, and all the ways in which it gives none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest
import trio

from trio_ollama.hardware.contract import DevicesUnknownError, RunnerDevice
from trio_ollama.runners.llama_server.devices import Build, embedded_devices, listed_devices
from trio_ollama.runners.llama_server.embedded import Embedded
from trio_ollama.runners.llama_server.external import External
from trio_ollama.runners.llama_server.probe import MARK, plain

MIB = 1 << 20


def line(**changes: object) -> str:
    device = {
        "name": "CUDA0",
        "description": "NVIDIA H1",
        "memory_free": 5,
        "memory_total": 9,
        "type": "GGML_BACKEND_DEVICE_TYPE_GPU",
        "device_id": "00000000:0A:00.0",
    }
    return f"noise\n{MARK}{json.dumps([device | changes])}\n"


def test_the_answer_of_the_embedded_build() -> None:
    assert embedded_devices(line()) == (RunnerDevice("CUDA0", "cuda", "NVIDIA H1", 9, 5, "0000:0a:00.0"),)
    [integrated] = embedded_devices(line(name="Vulkan0", type="GGML_BACKEND_DEVICE_TYPE_IGPU", device_id=None))
    assert (integrated.library, integrated.integrated, integrated.pci_id) == ("vulkan", True, "")
    for kind in ("CPU", "ACCEL"):
        assert embedded_devices(line(type=f"GGML_BACKEND_DEVICE_TYPE_{kind}")) == ()


@pytest.mark.parametrize(
    ("name", "library"),
    [("CUDA12", "cuda"), ("ROCm0", "rocm"), ("MTL0", "metal"), ("Metal", "metal"), ("SYCL1", "sycl")],
)
def test_libraries_by_name(name: str, library: str) -> None:
    [device] = embedded_devices(line(name=name))
    assert device.library == library


@pytest.mark.parametrize(
    "text",
    ["", "noise", MARK, MARK + "{", MARK + "[1]", line(memory_total=-1), line(memory_free="5")],
)
def test_an_answer_that_is_none(text: str) -> None:
    with pytest.raises(DevicesUnknownError):
        embedded_devices(text)


def test_an_enum_goes_by_its_member() -> None:
    class Kind:
        name = "GGML_BACKEND_DEVICE_TYPE_GPU"

    assert plain({"name": "CUDA0", "type": Kind(), "caps": {}})["type"] == "GGML_BACKEND_DEVICE_TYPE_GPU"


LISTED = """\
ggml_cuda_init: found 2 CUDA devices:
  Device 0: NVIDIA H1, compute capability 9.0, VMM: yes
Available devices:
  CUDA0: NVIDIA H1 (16379 MiB, 14900 MiB free)
  CUDA1: NVIDIA H1 (0000:0A:00.0) (16379 MiB, 0 MiB free)
  CUDA2: NVIDIA H1 (16379 MiB, 7 MiB free) (00000000:0b:00.0)
  Vulkan0: AMD Radeon Graphics (RADV RENOIR) (8000 MiB, 7000 MiB free)
  BLAS: OpenBLAS (0 MiB, 0 MiB free)
"""


def test_the_list_of_a_binary() -> None:
    assert listed_devices(LISTED) == (
        RunnerDevice("CUDA0", "cuda", "NVIDIA H1", 16379 * MIB, 14900 * MIB),
        RunnerDevice("CUDA1", "cuda", "NVIDIA H1", 16379 * MIB, 0, "0000:0a:00.0"),
        RunnerDevice("CUDA2", "cuda", "NVIDIA H1", 16379 * MIB, 7 * MIB, "0000:0b:00.0"),
        RunnerDevice("Vulkan0", "vulkan", "AMD Radeon Graphics (RADV RENOIR)", 8000 * MIB, 7000 * MIB),
    )
    assert listed_devices("Available devices:\n  (none)\n") == ()
    with pytest.raises(DevicesUnknownError):
        listed_devices("usage: llama-server")


def script(folder: Path, text: str) -> Build:
    binary = folder / "llama-server"
    binary.write_text(f"#!/bin/sh\n{text}\n")
    binary.chmod(0o755)
    return Build(External(binary), {**os.environ, "LLAMA_ARG_MODEL": "x", "CUDA_VISIBLE_DEVICES": "1"})


async def test_a_binary_is_asked_without_what_would_act_as_flags(tmp_path: Path) -> None:
    text = f'test "$1" = --list-devices || exit 3\nenv > {tmp_path}/env\ncat <<END\n{LISTED}END'
    assert len(await script(tmp_path, text).devices()) == 4
    environment = (tmp_path / "env").read_text().splitlines()
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in environment
    assert "CUDA_VISIBLE_DEVICES=1" in environment  # the user's filter holds
    assert not [entry for entry in environment if entry.startswith("LLAMA_ARG_")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo error: invalid argument: --list-devices >&2; exit 1", "exit status 1: error: invalid argument"),
        ("kill -6 $$", "exit status -6"),
        ("echo nothing", "no list of devices"),
        ("head -c 1000000 /dev/zero", "exit status|no list of devices"),
    ],
)
async def test_a_build_that_gives_no_answer(tmp_path: Path, text: str, words: str) -> None:
    with trio.fail_after(30), pytest.raises(DevicesUnknownError, match=words):
        await script(tmp_path, text).devices()


async def test_a_build_that_is_not_there(tmp_path: Path) -> None:
    build = Build(External(tmp_path / "missing"))
    build.stamp()
    with trio.fail_after(30), pytest.raises(DevicesUnknownError):
        await build.devices()


async def test_a_build_that_hangs_is_killed_with_all_it_has_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    build = script(tmp_path, f"exec 3> {tmp_path}/alive\necho started >&3\nsleep 1000 &\nsleep 1000")
    try:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(build.devices)
                await trio.lowlevel.wait_readable(reader)
                assert os.read(reader, 100) == b"started\n"
                nursery.cancel_scope.cancel()
            await trio.lowlevel.wait_readable(reader)  # nobody holds the other end any more
            assert os.read(reader, 100) == b""
    finally:
        os.close(reader)
    assert psutil.Process().children() == []  # reaped as well


def test_a_build_that_is_replaced_has_another_stamp(tmp_path: Path) -> None:
    build = script(tmp_path, "")
    before = build.stamp()
    assert build.stamp() == before
    os.utime(tmp_path / "llama-server", ns=(1, 1))
    assert build.stamp() != before


@pytest.mark.real
async def test_the_installed_build_answers() -> None:
    with trio.fail_after(60):
        devices = await Build(Embedded()).devices()
    assert all(device.total >= device.free >= 0 for device in devices)
