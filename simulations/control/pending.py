"""Today's loop for requests that wait: one after the other, each until it has a runner (R53)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from . import memory
from .channel import Receive, select
from .eviction import Eviction
from .loading import Loading, start_finisher
from .memory import Gpu
from .records import Asked, Loaded
from .reload import Reload
from .state import State

__all__ = ["Pending", "use"]

MODELS_PER_GPU: Final = 3


async def use(state: State, asked: Asked, runner: Loaded, *, always_sets: bool = False) -> None:
    """Grant a runner that was there when somebody looked. Its keep-alive becomes the request's (R38)."""
    async with runner.lock:
        state.count(runner, 1)
        runner.stop_timer()
        if always_sets:
            runner.keep_alive = state.policy.keep_alive if asked.keep_alive is None else asked.keep_alive
        elif asked.keep_alive is not None:
            runner.keep_alive = asked.keep_alive
        state.hand_over(asked, runner)
        await asked.success.send(runner)
        start_finisher(state, asked)


class Next(Enum):
    AGAIN = auto()
    """Look at everything anew."""
    DEALT_WITH = auto()
    END = auto()


class Pending:
    def __init__(self, state: State, reload: Reload, eviction: Eviction, loading: Loading) -> None:
        self.state = state
        self.reload = reload
        self.eviction = eviction
        self.loading = loading
        self._limit = state.policy.max_models

    async def loop(self) -> None:
        state = self.state
        while True:
            case, asked, _ = await select(Receive(state.ended.done), Receive(state.pending), Receive(state.unloaded))
            assert isinstance(case, Receive)
            if case.channel is state.pending:
                if asked.context.cancelled:
                    state.say(f"skips {asked.who}, whose client has left; its handler is not told", asked.key)
                elif not await self._serve(asked):
                    return
            elif case.channel is not state.unloaded:
                return

    async def _serve(self, asked: Asked) -> bool:
        """Until it has a runner or an error; whether its client is still there is not asked again (R02)."""
        state = self.state
        while True:
            async with state.map_lock:
                runner = state.loaded.get(asked.key)
                count = len(state.loaded)
            if runner is None:
                victim: Loaded | Next = await self._new(asked, count)
            elif await self.reload.needed(runner, asked, state.ended):
                state.say(f"{runner.who} has to be loaded anew for {asked.who}", asked.key)
                victim = runner
            else:
                await self.grant(asked, runner)
                return True
            if victim is Next.AGAIN:
                continue
            if isinstance(victim, Next):
                return victim is Next.DEALT_WITH
            await self.eviction.mark(victim, f"to make room for {asked.who}")
            if not await self.eviction.an_unload():
                return False

    async def grant(self, asked: Asked, runner: Loaded) -> None:
        await use(self.state, asked, runner)

    async def _new(self, asked: Asked, count: int) -> Loaded | Next:
        """A load, or the runner that has to go first."""
        state = self.state
        if 0 < self._limit <= count:
            return await self.eviction.victim() or Next.AGAIN
        num_gpu = asked.demand.options.num_gpu
        gpus: list[Gpu] = [] if num_gpu == 0 else await state.machine.gpus()
        system_free = await state.machine.system_free()
        if self._limit == 0:  # once, for ever (R47)
            seen = await state.machine.gpus() if num_gpu == 0 else gpus
            self._limit = MODELS_PER_GPU * max(len(seen), 1)
        await self._tell_known_usage(gpus)
        if not await self.loading.load(asked, system_free, gpus, require_full=count > 0):
            return Next.DEALT_WITH
        if count == 0:
            return Next.AGAIN
        if asked.oom_retried:
            return Next.AGAIN if await self.eviction.all_but(asked.key) else Next.END
        return await self.eviction.victim() or Next.AGAIN

    async def _tell_known_usage(self, gpus: list[Gpu]) -> None:
        if not gpus:
            return
        usage: dict[str, int] = {}
        async with self.state.map_lock:
            runners = list(self.state.loaded.values())
        for runner in runners:
            async with runner.lock:
                if runner.child is not None:
                    memory.add_usage(usage, gpus, runner)
        memory.tell_known_usage(gpus, usage)
