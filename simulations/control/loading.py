"""Today's load: in the pending loop, under the first requester's context, seen by nobody until it is done."""

from __future__ import annotations

from dataclasses import replace

from trio_ollama.runners.contract import LaunchSpec
from trio_ollama.scheduler import ModelFacts
from trio_ollama.scheduler.core.batch import automatic_batch
from trio_ollama.scheduler.core.memory import batch_surcharge, fits
from trio_ollama.scheduler.core.values import DeviceFacts

from . import memory
from .child import Child
from .completed import Completed
from .memory import Gpu
from .records import Asked, Loaded
from .runtime import Panic
from .state import State

__all__ = ["Loading", "start_finisher"]


def start_finisher(state: State, asked: Asked) -> None:
    """One goroutine waits for the end of the request, and then tells."""

    async def finish() -> None:
        await asked.context.done.receive()
        await state.finished.send(asked)

    state.runtime.go(finish, name=f"waiter for the end of {asked.who}")


def layers_on_gpus(model: ModelFacts, need: int, free: int) -> int:
    """What the child makes of too little room: -1 for all layers, else how many."""
    return -1 if need <= free else model.layers * free // need


class Loading:
    def __init__(self, state: State, completed: Completed) -> None:
        self.state = state
        self.completed = completed

    async def load(self, asked: Asked, system_free: int, gpus: list[Gpu], *, require_full: bool) -> bool:
        """True: something must be evicted first, or it is to be tried again."""
        state, model = self.state, asked.demand.model
        parallel = max(state.policy.num_parallel, 1) if model.completion else 1
        keep_alive = state.policy.keep_alive if asked.keep_alive is None else asked.keep_alive
        await state.map_lock.lock()
        if state.active is not None:
            state.map_lock.unlock()
            raise Panic("attempting to load different model after eviction")
        child, chosen = self._prepare(asked, system_free, gpus, parallel)
        if require_full and self._too_large(asked, child, chosen, system_free):
            state.map_lock.unlock()
            return True
        state.active = child
        state.map_lock.unlock()
        try:
            state.say(f"loads {model.name} on {[gpu.id for gpu in chosen]} for {asked.who}", asked.key)
            child.start()
            await child.wait_until_running(asked.context)
        except Panic:
            raise
        except Exception as error:
            return await self._failed(asked, error)
        runner = Loaded(
            key=asked.key,
            demand=asked.demand,
            child=child,
            options=asked.options,
            keep_alive=keep_alive,
            gpus=tuple(gpu.id for gpu in chosen),
            vram=child.report.gpu_bytes if child.report is not None else 0,
            pid=child.pid,
            discrete=any(not gpu.integrated for gpu in chosen),
            ctx_auto=asked.demand.options.num_ctx_auto,
            batch_auto=asked.demand.options.num_batch_auto,
        )
        await self._publish(asked, runner, child)
        return False

    def _prepare(self, asked: Asked, system_free: int, gpus: list[Gpu], parallel: int) -> tuple[Child, list[Gpu]]:
        state, model, options = self.state, asked.demand.model, asked.demand.options
        context = min(options.num_ctx, model.train_context) if model.train_context else options.num_ctx
        need = memory.predicted(model, context, parallel)
        chosen = memory.place(gpus, need, system_free, options.num_gpu, spread=state.policy.spread)
        free = memory.free_of(chosen, system_free)
        if model.completion and options.num_batch_auto:
            facts = [DeviceFacts(gpu.id, gpu.total, gpu.free, integrated=gpu.integrated) for gpu in chosen]
            flash = state.policy.flash_attention or "auto"
            asked.options["num_batch"] = automatic_batch(context * parallel, need, free, flash, facts)
        batch = int(asked.options["num_batch"] or 0)
        need += batch_surcharge(batch, model.completion)
        partial = memory.explicitly_partial(model, options.num_gpu)
        spec = LaunchSpec(
            model=model.path,
            num_ctx=context,
            parallel=parallel,
            num_batch=batch,
            gpu_layers=options.num_gpu if partial or not chosen else layers_on_gpus(model, need, free),
            visible_devices=tuple(gpu.id for gpu in chosen),
            adapters=model.adapters,
        )
        shares = {gpu.id: need // len(chosen) for gpu in chosen}
        return Child(state.runtime, state.factory, spec, state.limits.load_stall, shares), chosen

    def _too_large(self, asked: Asked, child: Child, chosen: list[Gpu], system_free: int) -> bool:
        """The look before the start: everything has to fit beside what is there."""
        model, options = asked.demand.model, asked.demand.options
        if memory.explicitly_partial(model, options.num_gpu) or not self.state.loaded or not chosen:
            return False
        need, free = sum(child.need.values()), memory.free_of(chosen, system_free)
        if fits(need, free):
            return False
        self.state.say(f"{asked.who} does not fit: {need >> 20} MiB, {free >> 20} are free", asked.key)
        return True

    async def _failed(self, asked: Asked, error: Exception) -> bool:
        state = self.state
        state.say(f"load for {asked.who} failed: {error}", asked.key)
        await state.active_child().close()  # nobody holds a lock here (R67)
        state.active = None
        async with state.map_lock:
            others = len(state.loaded) > 0
        if not asked.oom_retried and getattr(error, "out_of_memory", False) and (self._smaller(asked) or others):
            asked.oom_retried = True
            return True
        await asked.failure.send(error)
        return False

    def _smaller(self, asked: Asked) -> bool:
        """A smaller context, where nobody chose one."""
        options, train = asked.demand.options, asked.demand.model.train_context
        if not options.num_ctx_auto:
            return False
        effective = min(options.num_ctx, train) if train else options.num_ctx
        smaller = 32768 if effective > 32768 else 4096 if effective > 4096 else 0
        if not 0 < smaller < options.num_ctx:
            return False
        asked.demand = replace(asked.demand, options=replace(options, num_ctx=smaller))
        asked.options["num_ctx"] = smaller
        return True

    async def _publish(self, asked: Asked, runner: Loaded, child: Child) -> None:
        state = self.state
        await runner.lock.lock()  # until it runs, or does not
        await state.map_lock.lock()
        old = state.loaded.get(runner.key)
        if old is not None:
            async with old.lock:
                await self.completed.unload(old)
        state.active = None
        state.loaded[runner.key] = runner
        state.say(f"{runner.who} is loaded", runner.key)
        state.map_lock.unlock()
        state.runtime.go(self._hand_over, asked, runner, child, name=f"second wait for {runner.who}")

    async def _hand_over(self, asked: Asked, runner: Loaded, child: Child) -> None:
        state = self.state
        try:
            try:
                await child.wait_until_running(asked.context)
            except Exception as error:
                state.say(f"{runner.who} does not run after all: {error}", asked.key)
                await asked.failure.send(error)
                await state.expired.send(runner)
                return
            state.count(runner, 1)
            runner.loading = False
            start_finisher(state, asked)
            state.hand_over(asked, runner)
            await asked.success.send(runner)
        finally:
            runner.lock.unlock()
