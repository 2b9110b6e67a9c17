"""Go's channels on trio: bounded, first come first served, and `select` over several of them.

Every operation begins with a pause: a goroutine may be overtaken wherever it touches what others touch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import trio

from .dice import DICE, preempt

__all__ = ["Channel", "Receive", "Send", "select"]

Item = TypeVar("Item")


class _Waiter:
    """A goroutine in a `select` that nothing was ready for. The first channel that serves it settles it."""

    __slots__ = ("case", "open", "settled", "value")

    def __init__(self) -> None:
        self.settled = trio.Event()
        self.case: Receive[Any] | Send[Any] | None = None
        self.value: Any = None
        self.open = True

    def settle(self, case: Receive[Any] | Send[Any], value: Any = None, *, is_open: bool = True) -> None:
        self.case, self.value, self.open = case, value, is_open
        self.settled.set()


class Channel(Generic[Item]):
    """`capacity` 0: a value changes hands only when both are there."""

    def __init__(self, capacity: int = 0) -> None:
        self._capacity = capacity
        self._buffer: deque[Item] = deque()
        self._receivers: deque[tuple[_Waiter, Receive[Item]]] = deque()
        self._senders: deque[tuple[_Waiter, Send[Item]]] = deque()
        self.closed = False

    def __len__(self) -> int:
        return len(self._buffer)

    def offer(self, value: Item) -> bool:
        """Send unless that would block."""
        while self._receivers:
            waiter, case = self._receivers.popleft()
            if not waiter.settled.is_set():
                waiter.settle(case, value)
                return True
        if len(self._buffer) < self._capacity:
            self._buffer.append(value)
            return True
        return False

    async def send(self, value: Item) -> None:
        """Blocks while nobody takes it; there is no way to give up."""
        await select(Send(self, value))

    async def receive(self) -> Item:
        """None once it is closed and empty."""
        _, value, _ = await select(Receive(self))
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """All receivers go on, now and later."""
        self.closed = True
        while self._receivers:
            waiter, case = self._receivers.popleft()
            if not waiter.settled.is_set():
                waiter.settle(case, is_open=False)

    def _first_sender(self) -> tuple[_Waiter, Send[Item]] | None:
        while self._senders and self._senders[0][0].settled.is_set():
            self._senders.popleft()
        return self._senders[0] if self._senders else None

    def _take(self) -> tuple[Any, bool]:
        sender = self._first_sender()
        if self._buffer:
            value = self._buffer.popleft()
        elif sender is not None:
            value = sender[1].value
        else:
            return None, False
        if sender is not None:
            self._senders.popleft()
            if len(self._buffer) < self._capacity:
                self._buffer.append(sender[1].value)
            sender[0].settle(sender[1])
        return value, True


@dataclass(frozen=True, slots=True, eq=False)
class Receive(Generic[Item]):
    channel: Channel[Item]

    def ready(self) -> bool:
        channel = self.channel
        return bool(channel._buffer) or channel._first_sender() is not None or channel.closed

    def perform(self) -> tuple[Any, bool]:
        return self.channel._take()

    def enlist(self, waiter: _Waiter) -> None:
        self.channel._receivers.append((waiter, self))

    def withdraw(self, waiter: _Waiter) -> None:
        _forget(self.channel._receivers, waiter)


@dataclass(frozen=True, slots=True, eq=False)
class Send(Generic[Item]):
    channel: Channel[Item]
    value: Item

    def ready(self) -> bool:
        channel = self.channel
        return len(channel._buffer) < channel._capacity or any(
            not waiter.settled.is_set() for waiter, _ in channel._receivers
        )

    def perform(self) -> tuple[Any, bool]:
        sent = self.channel.offer(self.value)
        assert sent
        return None, True

    def enlist(self, waiter: _Waiter) -> None:
        self.channel._senders.append((waiter, self))

    def withdraw(self, waiter: _Waiter) -> None:
        _forget(self.channel._senders, waiter)


def _forget(queue: deque[tuple[_Waiter, Any]], waiter: _Waiter) -> None:
    for entry in [entry for entry in queue if entry[0] is waiter]:
        queue.remove(entry)


async def select(
    *cases: Receive[Any] | Send[Any],
) -> tuple[Receive[Any] | Send[Any], Any, bool]:
    """Whichever can go on, and with what; False if its channel is closed. Chance decides between several."""
    await preempt()
    ready = [case for case in cases if case.ready()]
    if ready:
        case = DICE.get().choice(ready)
        return case, *case.perform()
    waiter = _Waiter()
    for case in cases:
        case.enlist(waiter)
    try:
        await waiter.settled.wait()
    finally:
        for case in cases:
            case.withdraw(waiter)
    assert waiter.case is not None
    return waiter.case, waiter.value, waiter.open
