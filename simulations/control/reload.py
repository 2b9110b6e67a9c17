"""May a runner that is there be used as it is? The answer is old as soon as the lock is let go (R12)."""

from __future__ import annotations

from .context import Context
from .records import Asked, Loaded, Options
from .runtime import Panic
from .state import State

__all__ = ["OldReload", "Reload"]


class Reload:
    def __init__(self, state: State) -> None:
        self.state = state

    async def needed(self, runner: Loaded, asked: Asked, context: Context) -> bool:
        """`context` bounds the health check: the request's own, or the scheduler's."""
        async with runner.lock:
            if runner.options is None:
                return True
            there, wanted = dict(runner.options), dict(asked.options)
            self.adapt(runner, asked, there, wanted)
            number = wanted["num_gpu"]
            if number is not None and number < 0:
                there["num_gpu"] = wanted["num_gpu"] = -1
            if runner.demand is None or runner.child is None:
                raise Panic("nil pointer: the model of an unloaded runner")
            model = asked.demand.model
            return (
                runner.demand.model.adapters != model.adapters
                or runner.demand.model.projectors != model.projectors
                or there != wanted
                or not await runner.child.ping(context, loading=runner.loading)
            )

    def adapt(self, runner: Loaded, asked: Asked, there: Options, wanted: Options) -> None:
        """What counts as equal though it is not."""
        options, train = asked.demand.options, asked.demand.model.train_context
        if train > 0:
            wanted["num_ctx"] = min(int(wanted["num_ctx"] or 0), train)
        if runner.ctx_auto and options.num_ctx_auto:
            wanted["num_ctx"] = there["num_ctx"]
        if runner.batch_auto and options.num_batch_auto:
            wanted["num_batch"] = there["num_batch"]
        if runner.demand is not None:  # fixed at the start of a child, and on unless somebody says otherwise
            there["shift"] = runner.demand.options.shift is not False
            wanted["shift"] = options.shift is not False


class OldReload(Reload):
    def adapt(self, runner: Loaded, asked: Asked, there: Options, wanted: Options) -> None:
        pass
