"""Who has to go, and how it is told: its keep-alive becomes 0, and it is queued to expire if it is idle now."""

from __future__ import annotations

import trio

from .channel import Receive, select
from .records import UNSIGNED, Loaded
from .runtime import Panic
from .state import State

__all__ = ["Eviction", "OldEviction"]


class Eviction:
    def __init__(self, state: State) -> None:
        self.state = state

    async def victim(self) -> Loaded | None:
        """The first idle one in order of keep-alive, else the first. Negative keep-alives come last."""
        async with self.state.map_lock:
            runners = list(self.state.loaded.values())
        runners.sort(key=lambda runner: (runner.keep_alive & UNSIGNED, runner.key))
        for runner in runners:
            async with runner.lock:
                count = runner.count
            if count == 0:
                return runner
        return self._first(runners)

    def _first(self, runners: list[Loaded]) -> Loaded | None:
        return runners[0] if runners else None

    async def mark(self, runner: Loaded, why: str) -> None:
        """Nothing remembers that it is doomed: the next grant may give it another keep-alive (R38)."""
        async with runner.lock:
            self.state.say(f"marks {runner.who} to expire {why}, {runner.count} use it", runner.key)
            runner.stop_timer()
            runner.keep_alive = 0
            if runner.count == 0:
                await self.state.expired.send(runner)

    async def all_but(self, key: str) -> bool:
        """Mark all others and wait for that many unloads, whosever they are (R40). False: the server ends."""
        async with self.state.map_lock:
            victims = [runner for name, runner in self.state.loaded.items() if name != key]
        for runner in victims:
            await self.mark(runner, f"so that {key} can be tried again")
        for _ in victims:
            if not await self.an_unload():
                return False
        return True

    async def an_unload(self) -> bool:
        """Wait for any runner's unload. False: the server ends."""
        state = self.state
        case, _, _ = await select(Receive(state.ended.done), Receive(state.unloaded))
        return isinstance(case, Receive) and case.channel is state.unloaded

    async def after_runtime_oom(self) -> None:
        """A call found no memory: all have to go (R51)."""
        async with self.state.map_lock:
            victims = list(self.state.loaded.values())
        for runner in victims:
            await self.mark(runner, "because memory ran out")

    async def stop(self, key: str) -> None:
        """Somebody wants a model unloaded."""
        async with self.state.map_lock:
            runner = self.state.loaded.get(key)
        if runner is not None:
            runner.expires_at = trio.current_time()
            await self.mark(runner, "because somebody stops it")


class OldEviction(Eviction):
    def _first(self, runners: list[Loaded]) -> Loaded | None:
        if not runners:
            raise Panic("index out of range: the first of no runners (R41)")
        return runners[0]
