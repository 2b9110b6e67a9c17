"""The Go runtime of the modelled server: goroutines, timers, panics, and the end of it all.

machine (the operating system; nothing but `power_off` ends it)
├── process N             every child; it lives on when the server is gone
└── server                all goroutines: they cannot be cancelled, only vanish together
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio

from .dice import roll

__all__ = ["Panic", "Runtime", "Timer"]

Arguments = TypeVarTuple("Arguments")


class Panic(Exception):
    """What ends a Go server, unless the goroutine is a request's: that one's web framework recovers."""


class Runtime:
    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.panics: list[str] = []
        self.gone = False
        """The server's process has ended."""
        self.up = trio.Event()
        self.ended = trio.Event()
        """Set when it has ended."""
        self._machine = trio.CancelScope(shield=True)
        self._server: trio.Nursery | None = None
        self._children: trio.Nursery | None = None

    async def run(self) -> None:
        """Until the server has ended and no child is left, or until `power_off`."""
        with self._machine:
            async with trio.open_nursery() as self._children, trio.open_nursery() as self._server:
                await roll()
                self.up.set()
                await trio.sleep_forever()

    def go(
        self, work: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments, name: str, recovers: bool = False
    ) -> None:
        """Start a goroutine; `name` says, in a list of leftovers, what it does."""
        if not self.gone and self._server is not None:
            self._server.start_soon(self._goroutine, work, arguments, recovers, name=name)

    async def _goroutine(
        self, work: Callable[..., Awaitable[object]], arguments: tuple[object, ...], recovers: bool
    ) -> None:
        try:
            await work(*arguments)
        except Panic as panic:
            self.panics.append(f"panic: {panic}")
            self.note(f"panic: {panic}")
            if not recovers:
                self.vanish()

    def host(self, work: Callable[[*Arguments], Awaitable[object]], *arguments: *Arguments, name: str) -> None:
        """Start a child process."""
        assert self._children is not None
        self._children.start_soon(work, *arguments, name=name)

    def after(self, seconds: float, work: Callable[[], Awaitable[object]], *, name: str) -> Timer:
        """Go's AfterFunc."""
        timer = Timer(self, seconds, work, name)
        return timer

    def goroutines(self) -> list[str]:
        """Names of those that are there, timers that only tick left out."""
        names = [task.name for task in self._server.child_tasks] if self._server is not None else []
        return sorted(name for name in names if not name.startswith("timer"))

    def vanish(self) -> None:
        """The end of the server's process: nothing of it runs on. Its children do."""
        if not self.gone:
            self.gone = True
            self.ended.set()
            if self._server is not None:
                self._server.cancel_scope.cancel("the server's process ended")

    def power_off(self) -> None:
        """The end of the machine."""
        self.vanish()
        self._machine.cancel("the machine is off")


class Timer:
    """A goroutine that begins later, unless it is stopped before; once begun it cannot be called back."""

    def __init__(self, runtime: Runtime, seconds: float, work: Callable[[], Awaitable[object]], name: str) -> None:
        self._runtime = runtime
        self._work = work
        self._name = name
        self._scope = trio.CancelScope()
        self._live = False
        self.reset(seconds)

    def reset(self, seconds: float) -> None:
        """It begins that much later than now. One that has begun goes on, and there is one more."""
        self.stop()
        self._live = True
        self._scope = trio.CancelScope()
        self._runtime.go(self._tick, self._scope, seconds, name=f"timer {self._name}")

    def stop(self) -> bool:
        """False if there is nothing to stop: it has begun."""
        was, self._live = self._live, False
        self._scope.cancel()
        return was

    async def _tick(self, scope: trio.CancelScope, seconds: float) -> None:
        with scope:
            await trio.sleep(seconds)
        if scope is self._scope and self._live:
            self._live = False
            self._runtime.go(self._work, name=self._name)
