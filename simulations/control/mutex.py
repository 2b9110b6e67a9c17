"""Go's mutex: no owner, no timeout, no way to give up."""

from __future__ import annotations

from types import TracebackType

import trio

from .dice import preempt

__all__ = ["Mutex"]


class Mutex:
    """First come, first served. Others may come first whenever it is asked for: that is a pause."""

    def __init__(self) -> None:
        self._locked = False
        self._lot = trio.lowlevel.ParkingLot()

    @property
    def locked(self) -> bool:
        return self._locked

    async def lock(self) -> None:
        await preempt()
        if self._locked:
            await self._lot.park()
        self._locked = True

    def unlock(self) -> None:
        """It passes to the one who waits longest, and is never free in between."""
        assert self._locked, "unlock of an unlocked mutex"
        if not self._lot.unpark():
            self._locked = False

    async def __aenter__(self) -> None:
        await self.lock()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unlock()
