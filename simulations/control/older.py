"""How the older scheduler differed: no fast path, a runner is seen from its start, and a fit needs no headroom."""

from __future__ import annotations

from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler import ModelFacts

from . import memory
from .child import Child
from .eviction import Eviction
from .loading import layers_on_gpus, start_finisher
from .memory import Gpu
from .pending import Next, Pending, use
from .records import Asked, Loaded
from .reload import Reload
from .state import State

__all__ = ["OldLoading", "OldPending"]


class OldLoading:
    """The pending loop is blocked only until the process has started."""

    def __init__(self, state: State) -> None:
        self.state = state

    async def load(self, asked: Asked, gpus: list[Gpu], system_free: int, need: int) -> None:
        state, model, options = self.state, asked.demand.model, asked.demand.options
        free = memory.free_of(gpus, system_free)
        spec = LaunchSpec(
            model=model.path,
            num_ctx=options.num_ctx,
            parallel=max(state.policy.num_parallel, 1),
            num_batch=options.num_batch,
            gpu_layers=options.num_gpu if options.num_gpu >= 0 or not gpus else layers_on_gpus(model, need, free),
            visible_devices=tuple(gpu.id for gpu in gpus),
            adapters=model.adapters,
        )
        # One figure for all, spread evenly: each GPU's own share was not known.
        shares = {gpu.id: need // len(gpus) for gpu in gpus}
        child = Child(state.runtime, state.factory, spec, state.limits.load_stall, shares)
        try:
            child.start()
        except Exception as error:
            await asked.failure.send(error)
            return
        runner = Loaded(
            key=asked.key,
            demand=asked.demand,
            child=child,
            options=asked.options,
            keep_alive=state.policy.keep_alive if asked.keep_alive is None else asked.keep_alive,
            gpus=spec.visible_devices or (),
            vram=need,
            pid=child.pid,
            count=1,
        )
        await runner.lock.lock()  # for the whole load (R16)
        async with state.map_lock:
            state.loaded[runner.key] = runner  # whatever was there is forgotten (R15)
        state.say(f"{runner.who} starts on {list(runner.gpus)} for {asked.who}", runner.key)
        state.runtime.go(self._wait, asked, runner, child, name=f"load of {runner.who}")

    async def _wait(self, asked: Asked, runner: Loaded, child: Child) -> None:
        state = self.state
        try:
            try:
                await child.wait_until_running(asked.context)
            except Exception as error:
                state.say(f"load of {runner.who} failed: {error}", runner.key)
                state.count(runner, -1)
                await asked.failure.send(error)
                await state.expired.send(runner)
                return
            runner.loading = False
            start_finisher(state, asked)
            state.hand_over(asked, runner)
            await asked.success.send(runner)
        finally:
            runner.lock.unlock()


class OldPending(Pending):
    def __init__(self, state: State, reload: Reload, eviction: Eviction, loading: OldLoading) -> None:
        self.state = state
        self.reload = reload
        self.eviction = eviction
        self.old_loading = loading

    async def grant(self, asked: Asked, runner: Loaded) -> None:
        await use(self.state, asked, runner, always_sets=True)

    async def _new(self, asked: Asked, count: int) -> Loaded | Next:
        state, model, options = self.state, asked.demand.model, asked.demand.options
        if 0 < state.policy.max_models <= count:
            return await self.eviction.victim() or Next.AGAIN
        gpus = await state.machine.gpus()
        system_free = await state.machine.system_free()
        need = memory.predicted(model, int(asked.options["num_ctx"] or 0), 1)
        if not gpus or options.num_gpu == 0:
            await self.old_loading.load(asked, [], system_free, need)
            return Next.DEALT_WITH
        if count == 0:
            chosen = best_fit(gpus, model, need, options.num_gpu) or gpus
        else:
            await self._tell_known_usage(gpus)
            found = best_fit(gpus, model, need, options.num_gpu)
            if found is None:
                return await self.eviction.victim() or Next.AGAIN
            chosen = found
        await self.old_loading.load(asked, chosen, system_free, need)
        return Next.DEALT_WITH

    async def _tell_known_usage(self, gpus: list[Gpu]) -> None:
        """With the map's lock held while it waits for each runner's: whoever unloads does it the other way (R16)."""
        usage: dict[str, int] = {}
        async with self.state.map_lock:
            for runner in self.state.loaded.values():
                async with runner.lock:
                    if runner.child is not None:
                        memory.add_usage(usage, gpus, runner)
        memory.tell_known_usage(gpus, usage)


def best_fit(gpus: list[Gpu], model: ModelFacts, need: int, num_gpu: int) -> list[Gpu] | None:
    """The first single GPU, most free memory first, that takes all layers it is to take; else all of them; or None."""
    if 0 <= num_gpu < model.layers:
        need = need * num_gpu // model.layers
    ordered = sorted(gpus, key=lambda gpu: -gpu.free)
    for gpu in ordered:
        if need <= gpu.free:
            return [gpu]
    return ordered if need <= sum(gpu.free for gpu in ordered) else None
