"""The loop for what ends: requests that are done, and runners whose time is up."""

from __future__ import annotations

from typing import Final

import trio

from .channel import Receive, select
from .records import Asked, Loaded
from .recovery import Recovery
from .state import State

__all__ = ["Completed", "OldCompleted"]

AGAIN: Final = 0.01
"""Seconds after which an expiry that found its runner busy is queued again (R22)."""
PATIENCE: Final = 500
"""So often it is done so exactly. After that each try takes a tenth longer, for a wait without an end costs steps."""


class Completed:
    def __init__(self, state: State, recovery: Recovery) -> None:
        self.state = state
        self.recovery = recovery

    async def loop(self) -> None:
        state = self.state
        while True:
            case, what, _ = await select(Receive(state.ended.done), Receive(state.finished), Receive(state.expired))
            assert isinstance(case, Receive)
            if case.channel is state.finished:
                await self._finish(what)
            elif case.channel is state.expired:
                await self._expire(what)
            else:
                return

    async def _finish(self, asked: Asked) -> None:
        """It goes to whatever runner has the model's key now (R13)."""
        async with self.state.map_lock:
            runner = self.state.loaded.get(asked.key)
        if runner is None:
            self.state.say(f"{asked.who} is finished, but its runner is not there any more", asked.key)
            return
        async with runner.lock:
            self.state.count(runner, -1)
            if runner.count == 0:
                await self._idle(runner)

    async def _idle(self, runner: Loaded) -> None:
        seconds = runner.keep_alive / 1e9
        if runner.keep_alive <= 0:
            runner.stop_timer()
            # The only receiver of this channel is the one who sends (R23).
            await self.state.expired.send(runner)
            return
        if runner.timer is None:

            async def fire() -> None:
                async with runner.lock:
                    self.state.say(f"the timer of {runner.who} fires", runner.key)
                    runner.stop_timer()
                    await self.state.expired.send(runner)

            runner.timer = self.state.runtime.after(seconds, fire, name=f"expiry of {runner.who}")
        else:
            runner.timer.reset(seconds)
        runner.expires_at = trio.current_time() + seconds

    async def _expire(self, runner: Loaded) -> None:
        state = self.state
        await runner.lock.lock()
        if runner.count > 0:
            state.runtime.go(self._queue_again, runner, name=f"expiry of the busy {runner.who}")
            runner.lock.unlock()
            return
        await state.map_lock.lock()
        there = state.loaded.get(runner.key)
        if there is None:
            state.map_lock.unlock()
            runner.lock.unlock()
        elif runner.pid != there.pid:
            state.say(f"{runner.who} is an orphan of {there.who}", runner.key)
            await self.unload(runner)
            state.map_lock.unlock()
            runner.lock.unlock()
        else:
            # Both locks are held during a query and a kill, the runner's until its memory is back (R17).
            over = await self.recovery.begin(runner)
            await self.unload(runner)
            del state.loaded[runner.key]
            state.map_lock.unlock()
            await over.receive()
            runner.lock.unlock()
            await self._tell(runner)

    async def _tell(self, runner: Loaded) -> None:
        self.state.say(f"{runner.who} is unloaded", runner.key)
        await self.state.unloaded.send(None)

    async def unload(self, runner: Loaded) -> None:
        """With the runner's lock held."""
        self.state.say(f"unloads {runner.who}", runner.key)
        runner.stop_timer()
        if runner.child is not None:
            await runner.child.close()
        runner.demand = runner.options = None
        runner.gpus = ()

    _tries = 0

    async def _queue_again(self, runner: Loaded) -> None:
        self._tries = self._tries + 1 if runner.count > 0 else 0
        await trio.sleep(AGAIN * max(1.0, 1.1 ** (self._tries - PATIENCE)))
        await self.state.expired.send(runner)


class OldCompleted(Completed):
    """No look at who is in the map: an expiry that comes twice takes away the successor's entry (R14)."""

    async def _expire(self, runner: Loaded) -> None:
        state = self.state
        await runner.lock.lock()
        if runner.count > 0:
            state.runtime.go(self._queue_again, runner, name=f"expiry of the busy {runner.who}")
            runner.lock.unlock()
            return
        await state.map_lock.lock()
        over = await self.recovery.begin(runner)
        await self.unload(runner)
        state.loaded.pop(runner.key, None)
        state.map_lock.unlock()
        runner.lock.unlock()
        await over.receive()
        await self._tell(runner)

    async def unload(self, runner: Loaded) -> None:
        await super().unload(runner)
        runner.child = None
