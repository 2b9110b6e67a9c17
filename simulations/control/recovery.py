"""After an unload: wait until the GPUs report the memory back, or the time is up (R31-R36)."""

from __future__ import annotations

from typing import Final

import trio

from .channel import Channel
from .memory import Gpu
from .records import UNSIGNED, Loaded
from .state import State

__all__ = ["OldRecovery", "Recovery"]

POLL: Final = 0.25


def _sum(gpus: list[Gpu]) -> int:
    return sum(gpu.free for gpu in gpus)


class Recovery:
    """Today's: 75 %, skipped where no GPU was used, and it ends."""

    part = 0.75

    def __init__(self, state: State) -> None:
        self.state = state

    def skipped(self, runner: Loaded) -> bool:
        return not runner.gpus or not runner.discrete

    async def begin(self, runner: Loaded) -> Channel[None]:
        """Call it before the process ends, for the figures of before. It tells on the channel when it is over."""
        over: Channel[None] = Channel(1)
        if self.skipped(runner):
            over.offer(None)
            return over
        started = trio.current_time()
        before = _sum(await self.state.machine.gpus())
        self.state.runtime.go(self.watch, runner, before, started, over, name=f"recovery of {runner.who}")
        return over

    def converged(self, before: int, now: int, vram: int) -> bool:
        # The difference has no sign: less free memory than before is a great gain (R32).
        return (now - before) & UNSIGNED > vram * self.part

    async def watch(self, runner: Loaded, before: int, started: float, over: Channel[None]) -> None:
        vram = runner.vram
        with trio.move_on_after(self.state.limits.recovery):
            while True:
                await trio.sleep(POLL)
                if self.converged(before, _sum(await self.state.machine.gpus()), vram):
                    break
        await over.send(None)


class OldRecovery(Recovery):
    """80 %, and after the time is up it goes on for ever (R33)."""

    part = 0.8

    def skipped(self, runner: Loaded) -> bool:
        # Only for the CPU, which an unloaded runner does not know to be on: it is waited for once more (R14).
        return not runner.gpus and runner.options is not None

    async def watch(self, runner: Loaded, before: int, started: float, over: Channel[None]) -> None:
        vram = runner.vram
        while True:
            await trio.sleep(POLL)
            if trio.current_time() > started + self.state.limits.recovery:
                await over.send(None)  # and no return: the third time nobody is there to take it
            if self.converged(before, _sum(await self.state.machine.gpus()), vram):
                await over.send(None)
                return
