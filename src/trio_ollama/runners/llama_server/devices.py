"""Which devices the runner's build can use, asked of the build itself: a driver may show GPUs it was not made for.

The question is a short child process: the answer initialises each GPU's library, which may hang, crash, or keep
memory on the GPU, and nothing of that may stay in the daemon.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import trio

from trio_ollama.hardware.contract import DevicesUnknownError, RunnerDevice
from trio_ollama.runners.contract import SpawnError
from trio_ollama.runners.llama_server import child
from trio_ollama.runners.llama_server.environment import scrubbed
from trio_ollama.runners.llama_server.probe import MARK
from trio_ollama.runners.llama_server.process import ChildProcess

__all__ = ["Build", "embedded_devices", "listed_devices"]

logger = logging.getLogger(__name__)

MOST_OUTPUT: Final = 256 * 1024
"""Bytes of an answer; more is no list of devices."""
REAP_TIMEOUT: Final = 1.0
"""Seconds in which a killed question is expected to be gone. One that hangs in a driver is left to itself."""
MIB: Final = 1 << 20

LIBRARIES: Final = (("cuda", "cuda"), ("rocm", "rocm"), ("hip", "rocm"), ("vulkan", "vulkan"), ("mtl", "metal"))
"""By the beginning of llama.cpp's names for devices; otherwise the name without its number."""


class Question(Protocol):
    """Of one kind of runner."""

    def interpreter(self) -> list[str]:
        """The Python that runs `child.py`."""
        ...

    def devices_command(self) -> list[str]:
        """Prints the devices."""
        ...

    def parse_devices(self, text: str) -> tuple[RunnerDevice, ...]:
        """Raises `DevicesUnknownError`."""
        ...

    def files(self) -> Path:
        """What changes when the build is replaced."""
        ...


class Build:
    """Implements `hardware.contract.RunnerBuild`. `environ`: what the runners inherit."""

    def __init__(self, kind: Question, environ: Mapping[str, str] = os.environ) -> None:
        self._kind = kind
        self._environ = environ

    def stamp(self) -> object:
        path = self._kind.files()
        try:
            return str(path), path.stat().st_mtime_ns
        except OSError:
            return str(path), None

    async def devices(self) -> tuple[RunnerDevice, ...]:
        """To be called in the main thread: the child dies with its thread."""
        launch = json.dumps({"exec": self._kind.devices_command()})
        # The same numbers as in NVML's order, so that positions say something where names do not.
        environment = scrubbed(self._environ) | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        try:
            process = ChildProcess([*self._kind.interpreter(), child.__file__, str(os.getpid()), launch], environment)
        except (OSError, SpawnError) as error:
            raise DevicesUnknownError(str(error)) from error
        status, text = await _answer(process)
        if status != 0:
            last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
            raise DevicesUnknownError(f"exit status {status}" + (f": {last[:200]}" if last else ""))
        return self._kind.parse_devices(text)


async def _answer(process: ChildProcess) -> tuple[int, str]:
    """Exit status and output. However this ends, the process is killed, and reaped within a bound."""
    output = b""
    try:
        try:
            async with process.take_output() as stream:
                while len(output) < MOST_OUTPUT and (data := bytes(await stream.receive_some(65536))):
                    output += data
            status = await process.wait()
        finally:
            if process.status is None:
                process.kill()
                with trio.move_on_after(REAP_TIMEOUT, shield=True):
                    await process.wait()
                if process.status is None:
                    logger.error("process %d, asked for devices, cannot be killed: it is left behind", process.pid)
    finally:
        process.close()
    return status, output.decode(errors="replace")


def embedded_devices(text: str) -> tuple[RunnerDevice, ...]:
    """The answer of `probe.py`, without the CPU and what only assists it."""
    try:
        line = next(line for line in text.splitlines() if line.startswith(MARK))
        return tuple(
            RunnerDevice(
                name=str(device["name"]),
                library=_library(str(device["name"])),
                description=str(device["description"]),
                total=_bytes(device["memory_total"]),
                free=_bytes(device["memory_free"]),
                pci_id=_pci_id(str(device.get("device_id") or "")),
                integrated=str(device["type"]).endswith("_IGPU"),
            )
            for device in json.loads(line.removeprefix(MARK))
            if str(device["type"]).endswith("GPU")
        )
    except (StopIteration, ValueError, KeyError, TypeError) as error:
        raise DevicesUnknownError("its answer is no list of devices") from error


def listed_devices(text: str) -> tuple[RunnerDevice, ...]:
    """What `llama-server --list-devices` prints: a heading, then a line for each device that is no CPU."""
    if "Available devices" not in text:
        raise DevicesUnknownError("its answer is no list of devices")
    found = (_LISTED.match(line) for line in text[text.index("Available devices") :].splitlines())
    return tuple(
        RunnerDevice(
            name=match["name"],
            library=_library(match["name"]),
            description=re.sub(_PCI, "", match["description"]).replace("()", "").strip(),
            total=int(match["total"]) * MIB,
            free=int(match["free"]) * MIB,
            pci_id=_pci_id(match["description"] + match["rest"]),
        )
        for match in found
        if match is not None and match["name"].upper() not in {"BLAS", "CPU"}
    )


_LISTED: Final = re.compile(
    r"\s+(?P<name>[A-Za-z]{2,20}\d{0,3}):\s+(?P<description>.{0,300}?)\s*"
    r"\((?P<total>\d{1,12}) MiB, (?P<free>\d{1,12}) MiB free\)(?P<rest>.{0,100})"
)
_PCI: Final = re.compile(r"\b([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\b", re.IGNORECASE)


def _library(name: str) -> str:
    lowered = name.lower()
    return next((library for start, library in LIBRARIES if lowered.startswith(start)), lowered.rstrip("0123456789"))


def _pci_id(text: str) -> str:
    """The PCI id in a text, with four digits of the domain; empty if there is none."""
    match = _PCI.search(text)
    return f"{match[1][-4:]}:{match[2]}".lower() if match else ""


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 50:
        raise ValueError(f"not a size: {value!r}")
    return value
