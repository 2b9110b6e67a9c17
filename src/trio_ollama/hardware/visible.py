"""Which NVIDIA GPUs the user lets us use: CUDA_VISIBLE_DEVICES, as CUDA reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trio_ollama.hardware.contract import DeviceReport

__all__ = ["HIDDEN", "filtered", "select_visible"]

HIDDEN: Final = "hidden by CUDA_VISIBLE_DEVICES"


def filtered(devices: Sequence[DeviceReport], visible: str | None) -> tuple[DeviceReport, ...]:
    """The devices to be used, in the order of the filter, then all others with what is against them."""
    shown = select_visible(devices, visible)
    ids = {device.id for device in shown}
    hidden = [replace(device, trouble=HIDDEN) for device in devices if device.id not in ids]
    return (
        *(device for device in shown if not device.trouble),
        *(device for device in shown if device.trouble),
        *hidden,
    )


def select_visible(devices: Sequence[DeviceReport], visible: str | None) -> tuple[DeviceReport, ...]:
    """The devices that CUDA_VISIBLE_DEVICES leaves, in its order; all if it is None.

    Its tokens are indices or (the beginnings of) UUIDs. As in CUDA, a token that names no device, or one that was
    named before, hides all that come after it, so empty and `-1` hide everything.
    Indices count GPUs in PCI order: runners are given UUIDs, so CUDA's own order does not matter. The index of a GPU
    that is cut into MIG devices names the first of them, as in CUDA.
    """
    if visible is None:
        return tuple(devices)
    chosen: list[DeviceReport] = []
    for token in visible.split(","):
        device = _named(devices, token.strip())
        if device is None or device in chosen:
            break
        chosen.append(device)
    return tuple(chosen)


def _named(devices: Sequence[DeviceReport], token: str) -> DeviceReport | None:
    if re.fullmatch("[0-9]{1,4}", token):
        wholes = _by_gpu(devices)
        return wholes[int(token)] if int(token) < len(wholes) else None
    upper = token.upper()
    if not upper.startswith(("GPU-", "MIG-")):
        return None
    if "/" in upper:  # the older form of a MIG device's name: always in full
        named = [device for device in devices if upper in (device.alias.upper(), device.id.upper())]
    else:
        named = [device for device in devices if device.id.upper().startswith(upper)]
    return named[0] if len(named) == 1 else None


def _by_gpu(devices: Sequence[DeviceReport]) -> list[DeviceReport]:
    """One device for each GPU: itself, or its first part."""
    first: dict[str, DeviceReport] = {}
    for device in devices:
        first.setdefault(device.pci_id if device.alone else device.id, device)
    return list(first.values())
