"""Waiting for a runner's memory to come back after its process has ended, per device (R31-R36).

Drivers report freed memory late. Until it is back, or V has passed, the runner's bytes stay reserved, so that only
loads that need them wait. Where the driver names the processes on a GPU, the runner's has to be gone from its list,
too; that also ends waits that free memory alone would not. Skipped where nothing can recover: RAM is free with the
exit. A process that ended by itself is compared with the last look before its end: the first one after it mostly shows
that all is back (R34), and a late driver is waited for here, too (R35).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import trio

from .core.memory import saturating_sub
from .core.values import DeviceFacts

__all__ = ["Sighting", "came_back", "recover", "sighting", "vanished"]


def came_back(now: int, *, held: int, stopped: int, started: int) -> bool:
    """True if `held` bytes may be taken for free again, at `now` free bytes of the device (R31, R34, G16).

    Either more than 75 % of them came back since the process was `stopped`, or at most 25 % are missing from what was
    free when it was `started`. Saturating, in ints: a figure that falls meanwhile is no progress (R32).
    """
    return held == 0 or 4 * max(0, now - stopped) > 3 * held or 4 * max(0, started - now) <= held


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the driver said of a runner on one GPU while it was alive. None: it did not say."""

    held: int | None
    """Bytes of the runner's processes."""
    unexplained: int | None
    """Bytes in use that are no process's: the driver's own, and what it hides."""


def sighting(pid: int, listed: Mapping[int, int | None] | None, device: DeviceFacts) -> Sighting | None:
    """Of the runner with this pid; None if it is not among the processes, so that its absence would prove nothing."""
    if listed is None or pid not in listed:
        return None
    return Sighting(listed[pid], _unexplained(listed, device))


def vanished(
    seen: Sighting, listed: Mapping[int, int | None], device: DeviceFacts, *, stopped: int, started: int, held: int
) -> bool:
    """Whether the device's figures agree with the process being gone from its list.

    What really was held counts, where the driver says it, not only what was predicted (`held`); and whatever others
    have taken meanwhile is no reason to wait if the list explains it.
    """
    amount, free = seen.held if seen.held is not None else held, device.reported_free
    if came_back(free, held=amount, stopped=stopped, started=started):
        return True
    before, now = seen.unexplained, _unexplained(listed, device)
    return before is not None and now is not None and 4 * max(0, now - before) <= amount


def _unexplained(listed: Mapping[int, int | None], device: DeviceFacts) -> int | None:
    known = [amount for amount in listed.values() if amount is not None]
    if len(known) < len(listed):
        return None
    return saturating_sub(saturating_sub(device.total, device.reported_free), sum(known))


async def recover(
    held: Mapping[str, int],
    stopped: Mapping[str, int] | None,
    started: Mapping[str, int],
    query: Callable[[], Awaitable[Sequence[DeviceFacts]]],
    *,
    limit: float,
    poll: float,
    pid: int = 0,
    seen: Mapping[str, Sighting] = MappingProxyType({}),
    processes: Callable[[str], Awaitable[Mapping[int, int | None] | None]] | None = None,
) -> str:
    """Wait until every device in `held` (bytes by GPU id) has its memory back; returns how it ended, for people.

    `started`, `stopped`: free bytes by GPU id before the process took anything, and before it was stopped; the latter
    is None if there was no process. On a device where `pid` was `seen`, the driver's list of `processes` says when it
    is gone; on all others, and whenever there is no list, free memory has to tell.
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
                start = started.get(id_, device.total)
                # Some is back, and two equal looks after half a second: no more is coming (R34). Equal looks that show
                # nothing of it only say that the driver has not noticed yet (R35).
                settled = last.get(id_) == free > before and trio.current_time() - begun >= 0.5
                back = settled or came_back(free, held=amount, stopped=before, started=start)
                listed = await processes(id_) if processes is not None and id_ in seen else None
                if listed is not None:
                    # A process that is still listed holds its memory, whatever others have given back.
                    back = pid not in listed and (
                        back or vanished(seen[id_], listed, device, stopped=before, started=start, held=amount)
                    )
                missing = missing or not back
                last[id_] = free
            if not missing:
                return f"memory back after {trio.current_time() - begun:.2f} s"
            await trio.sleep(poll)
    return f"memory not seen back within {limit:g} s"
