"""Waiting for a runner's memory to come back after its process has ended, per device (R31-R36).

Drivers report freed memory late. Until it is back, or V has passed, the runner's bytes stay reserved, so that only
loads that need them wait. Skipped where nothing can recover: RAM is free with the exit, and a process that was dead
before anybody looked has nothing left to give back (R34).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from .core.values import DeviceFacts

__all__ = ["came_back", "recover"]


def came_back(before: int, now: int, vram: int) -> bool:
    """More than 75 % of `vram` bytes are free again; saturating, in ints (R32, G16). Nothing held: nothing to wait."""
    return vram == 0 or 4 * max(0, now - before) > 3 * vram


async def recover(
    held: Mapping[str, int],
    before: Mapping[str, int] | None,
    query: Callable[[], Awaitable[Sequence[DeviceFacts]]],
    *,
    limit: float,
    poll: float,
) -> str:
    """Wait until every device in `held` (bytes by GPU id) has its memory back; returns how it ended, for people.

    `before`: free bytes by GPU id before the process was stopped; None if it ended by itself.
    """
    if not held or before is None:
        return "nothing to recover"
    started = trio.current_time()
    last: dict[str, int] = {}
    with trio.move_on_after(limit):
        while True:
            facts = {device.id: device for device in await query()}
            missing = False
            for id_, vram in held.items():
                device = facts.get(id_)
                if device is None or device.integrated:
                    continue  # gone, or RAM in truth
                free = device.reported_free
                # Two equal looks after half a second: it will not come back any further (R34).
                settled = last.get(id_) == free and trio.current_time() - started >= 0.5
                missing = missing or not (came_back(before.get(id_, 0), free, vram) or settled)
                last[id_] = free
            if not missing:
                return f"memory back after {trio.current_time() - started:.2f} s"
            await trio.sleep(poll)
    return f"memory not seen back within {limit:g} s"
