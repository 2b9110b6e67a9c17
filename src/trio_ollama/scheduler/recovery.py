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


def came_back(now: int, *, held: int, stopped: int, started: int) -> bool:
    """True if `held` bytes may be taken for free again, at `now` free bytes of the device (R31, R34, G16).

    Either more than 75 % of them came back since the process was `stopped`, or at most 25 % are missing from what was
    free when it was `started`. Saturating, in ints: a figure that falls meanwhile is no progress (R32).
    """
    return held == 0 or 4 * max(0, now - stopped) > 3 * held or 4 * max(0, started - now) <= held


async def recover(
    held: Mapping[str, int],
    stopped: Mapping[str, int] | None,
    started: Mapping[str, int],
    query: Callable[[], Awaitable[Sequence[DeviceFacts]]],
    *,
    limit: float,
    poll: float,
) -> str:
    """Wait until every device in `held` (bytes by GPU id) has its memory back; returns how it ended, for people.

    `started`, `stopped`: free bytes by GPU id before the process took anything, and before it was stopped; the latter
    is None if it ended by itself.
    """
    if not held or stopped is None:
        return "nothing to recover"
    begun = trio.current_time()
    last: dict[str, int] = {}
    with trio.move_on_after(limit):
        while True:
            facts = {device.id: device for device in await query()}
            missing = False
            for id_, amount in held.items():
                device = facts.get(id_)
                if device is None or device.integrated:
                    continue  # gone, or RAM in truth
                free, before = device.reported_free, stopped.get(id_, 0)
                # Some is back, and two equal looks after half a second: no more is coming (R34). Equal looks that show
                # nothing of it only say that the driver has not noticed yet (R35).
                settled = last.get(id_) == free > before and trio.current_time() - begun >= 0.5
                back = came_back(free, held=amount, stopped=before, started=started.get(id_, device.total))
                missing = missing or not (back or settled)
                last[id_] = free
            if not missing:
                return f"memory back after {trio.current_time() - begun:.2f} s"
            await trio.sleep(poll)
    return f"memory not seen back within {limit:g} s"
