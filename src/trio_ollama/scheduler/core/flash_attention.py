"""Which mode of flash attention a runner is started with."""

from __future__ import annotations

from collections.abc import Sequence

from .values import DeviceFacts

__all__ = ["flash_attention", "supports_flash_attention"]


def flash_attention(setting: str, devices: Sequence[DeviceFacts]) -> str:
    """`on`, `off` or `auto`: the user's setting, else `auto` unless one of the placement's GPUs cannot do it."""
    if setting:
        return setting
    return "auto" if all(supports_flash_attention(device) for device in devices) else "off"


def supports_flash_attention(device: DeviceFacts) -> bool:
    """All but old CUDA devices: compute 6.0 and later without 7.2, and a driver for CUDA 7 or later (0: unknown)."""
    if device.library.lower() != "cuda":
        return True
    driver = device.driver[0]
    return device.compute >= (6, 0) and device.compute != (7, 2) and (driver == 0 or driver >= 7)
