"""The machine that is planned for: memory sizes by device, and what other programs hold of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from simulations.world.hardware import GIB, SimulatedHardware
from trio_ollama.hardware.contract import CPU

from .trace import Header

__all__ = ["RAM", "Machine", "MachineError", "from_header", "read_machine"]

RAM: Final = 64 * GIB
"""Where nobody says otherwise."""


class MachineError(Exception):
    """A description that cannot be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Sizes in bytes."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    ram: int = RAM
    foreign: Mapping[str, int] = field(default_factory=dict)
    """What was not free before the first load."""

    def with_gpus(self, sizes: Sequence[float]) -> Machine:
        """Other GPUs, of so many GiB each, that nobody else uses."""
        if any(size <= 0 for size in sizes):
            raise MachineError("a GPU must have more than 0 GiB")
        gpus = {f"GPU-{number}": round(size * GIB) for number, size in enumerate(sizes)}
        return replace(self, gpus=gpus, foreign={id_: held for id_, held in self.foreign.items() if id_ == CPU})

    def with_ram(self, size: float) -> Machine:
        """Another size of RAM, in GiB, that nobody else uses."""
        if size <= 0:
            raise MachineError("there must be more than 0 GiB of RAM")
        return replace(
            self, ram=round(size * GIB), foreign={id_: held for id_, held in self.foreign.items() if id_ != CPU}
        )

    def make(self) -> SimulatedHardware:
        hardware = SimulatedHardware(self.gpus, ram=self.ram)
        for id_, held in self.foreign.items():
            hardware.take(id_, held)
        return hardware

    def __str__(self) -> str:
        gpus = " + ".join(f"{size / GIB:g}" for size in self.gpus.values())
        return f"{f'GPUs of {gpus} GiB' if gpus else 'no GPU'}, {self.ram / GIB:.3g} GiB of RAM"


def from_header(header: Header | None) -> Machine:
    """The machine that was recorded, as it was before the first load; without a record one without GPUs."""
    if header is None or not header.devices:
        return Machine()
    sizes = {str(device["id"]): int(device["total"]) for device in header.devices}
    held = {str(device["id"]): max(0, int(device["total"]) - int(device["reported_free"])) for device in header.devices}
    ram = sizes.pop(CPU, RAM)
    return Machine(gpus=sizes, ram=ram, foreign={id_: amount for id_, amount in held.items() if amount})


def read_machine(path: Path) -> tuple[Machine, Mapping[str, Mapping[str, Any]]]:
    """A machine and what is said of its models: `{"gpus": [24, 24], "ram": 64, "models": {NAME: {...}}}`, in GiB.

    Raises `MachineError` and `OSError`.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MachineError(f"{path.name}: this is not JSON: {error}") from None
    if not isinstance(described, dict) or set(described) - {"gpus", "ram", "models"}:
        raise MachineError(f'{path.name}: it must be an object with "gpus", "ram" and "models", each as needed')
    gpus, ram, models = described.get("gpus", []), described.get("ram", RAM / GIB), described.get("models", {})
    if not isinstance(gpus, list) or not all(_is_size(size) for size in (*gpus, ram)):
        raise MachineError(f'{path.name}: "gpus" must be a list of sizes in GiB, "ram" one')
    if not isinstance(models, dict) or not all(isinstance(facts, dict) for facts in models.values()):
        raise MachineError(f'{path.name}: "models" must be an object with an object for each model')
    return Machine().with_gpus(gpus).with_ram(ram), models


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
