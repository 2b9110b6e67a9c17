"""The GPUs of a simulated machine, as plain files: the library and the runner doubles read them, tests change them.

    FOLDER/devices    sections with keys: `[driver]`, then one for each GPU or MIG device, named by its UUID
    FOLDER/vram/PID   what a process holds: lines of UUID and bytes; void when the process has ended
    FOLDER/lock       taken by whoever allocates
    FOLDER/hold       while it exists, runner doubles wait before they allocate

Keys of a device: `name`, `pci`, `total`, `others` (bytes of other programs), `unseen` (those that the driver does not
report), `unusable` (CUDA does not find it), `reserved` (bytes of the driver's own), `lag` (seconds by which the
driver's report is late; `lag.taken`: only for memory that is taken; `prompt`: not for the list of processes),
`compute`, `parent` (makes it a MIG device), `mig` (0 or 1), `processes`, `compute_processes`, `graphics_processes` (see
`nvml.c`), `raw.total`, `raw.free`, `raw.used` (what is answered, whatever is true). Keys of the driver: `version`,
`cuda`, `count`. Keys of both: `error` (an NVML code) and `hang` (seconds), for all calls or, as
`error.nvmlDeviceGetName`, for one (without the `_v2` of its name).
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

__all__ = ["GIB", "MIB", "VARIABLE", "FakeGpu", "FakeMachine", "Machine"]

MIB = 1 << 20
GIB = 1 << 30

VARIABLE = "FAKE_NVML"
"""Environment variable with the folder."""

DRIVER = "driver"


@dataclass(frozen=True)
class FakeGpu:
    """A device to begin with; `keys` are further ones of its section."""

    uuid: str
    total: int = 24 * GIB
    name: str = "NVIDIA GeForce RTX 3090"
    pci: str = ""
    """As NVML writes it, with eight digits of domain; empty for bus 1, 2, ... in the order of the list."""
    compute: str = "8.6"
    keys: Mapping[str, object] = field(default_factory=dict)


class Machine:
    """The truth about the simulated GPUs, whatever the driver reports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sections(self) -> dict[str, dict[str, str]]:
        """The `devices` file; empty without a driver."""
        parser = configparser.RawConfigParser(default_section="")
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        with contextlib.suppress(FileNotFoundError):
            parser.read_string((self.folder / "devices").read_text(encoding="utf-8", errors="surrogateescape"))
        return {name: dict(parser[name]) for name in parser.sections()}

    def devices(self) -> dict[str, dict[str, str]]:
        """The keys of each device by UUID, in PCI order."""
        return {name: keys for name, keys in self.sections().items() if name != DRIVER}

    def held(self, uuid: str) -> dict[int, int]:
        """Bytes on a device by the pid of the (living) process that holds them."""
        found: dict[int, int] = {}
        for path in (self.folder / "vram").iterdir():
            if path.name.isdigit() and _alive(int(path.name)):
                for line in path.read_text().splitlines():
                    device, amount = line.split()
                    if device == uuid:
                        found[int(path.name)] = found.get(int(path.name), 0) + int(amount)
        return found

    def free(self, uuid: str) -> int:
        """Bytes that an allocation on a device can really get."""
        keys = self.devices()[uuid]
        taken = sum(int(keys.get(key, 0)) for key in ("others", "reserved", "unseen")) + sum(self.held(uuid).values())
        return max(0, int(keys["total"]) - taken)

    def allocate(self, amounts: Mapping[str, int]) -> str | None:
        """Take bytes by UUID for this process, all or none; returns the UUID of a device that has not enough."""
        with self._locked():
            for uuid, amount in amounts.items():
                if amount > self.free(uuid):
                    return uuid
            path = self.folder / "vram" / str(os.getpid())
            _replace(path, "".join(f"{uuid} {amount}\n" for uuid, amount in amounts.items()))
        return None

    @property
    def on_hold(self) -> bool:
        return (self.folder / "hold").exists()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class FakeMachine(Machine):
    """A simulated machine that tests make and change. `library` is the folder with the built library."""

    def __init__(self, folder: Path, library: Path, gpus: Sequence[FakeGpu], **driver: object) -> None:
        super().__init__(folder)
        self._library = library
        (folder / "vram").mkdir(parents=True)
        sections = {DRIVER: _texts(driver)}
        for number, gpu in enumerate(gpus, start=1):
            keys = {"name": gpu.name, "pci": gpu.pci or f"00000000:{number:02X}:00.0", "total": gpu.total}
            sections[gpu.uuid] = _texts({**keys, "compute": gpu.compute, **gpu.keys})
        self._write(sections)

    @property
    def variables(self) -> dict[str, str]:
        """Environment of a process that is to see these GPUs."""
        paths = [str(self._library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {VARIABLE: str(self.folder), "LD_LIBRARY_PATH": ":".join(paths)}

    def change(self, section: str, **keys: object) -> None:
        """Set keys of a device (by UUID) or of the `driver`; None removes one. A double underscore stands for a dot."""
        sections = self.sections()
        for key, value in keys.items():
            name = key.replace("__", ".")
            if value is None:
                sections[section].pop(name, None)
            else:
                sections[section][name] = str(value)
        self._write(sections)

    def remove(self, uuid: str) -> dict[str, str]:
        """The device vanishes; returns its keys, for `add`."""
        sections = self.sections()
        keys = sections.pop(uuid)
        self._write(sections)
        return keys

    def add(self, uuid: str, keys: Mapping[str, object]) -> None:
        """A device appears, as the last one."""
        self._write({**self.sections(), uuid: _texts(keys)})

    @contextlib.contextmanager
    def without_driver(self) -> Iterator[None]:
        """NVML is there, the driver is not."""
        away = (self.folder / "devices").rename(self.folder / "no devices")
        try:
            yield
        finally:
            away.rename(self.folder / "devices")

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Runner doubles stop between their look at free memory and their allocation."""
        (self.folder / "hold").touch()
        try:
            yield
        finally:
            (self.folder / "hold").unlink()

    def _write(self, sections: Mapping[str, Mapping[str, str]]) -> None:
        """At once: readers see the old text or the new one."""
        text = ""
        for name, keys in sections.items():
            text += f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in keys.items())
        _replace(self.folder / "devices", text)


def _texts(keys: Mapping[str, object]) -> dict[str, str]:
    return {key.replace("__", "."): str(value) for key, value in keys.items() if value is not None}


def _replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    new.replace(path)


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
