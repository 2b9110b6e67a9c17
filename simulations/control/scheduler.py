"""The modelled server as a whole: its door, its two loops, its end.

run
└── machine           see `runtime`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import trio

from trio_ollama.hardware.contract import Hardware
from trio_ollama.runners.contract import RunnerFactory
from trio_ollama.scheduler import Demand, Limits, Policy, QueueFullError
from trio_ollama.scheduler.core.events import Event

from .channel import Channel, Receive, select
from .completed import Completed, OldCompleted
from .dice import preempt
from .eviction import Eviction, OldEviction
from .http import Answer, ConnectionLostError, Lease
from .loading import Loading
from .older import OldLoading, OldPending
from .pending import Pending, use
from .records import Asked, compared
from .recovery import OldRecovery, Recovery
from .reload import OldReload, Reload
from .runtime import Panic
from .state import State

__all__ = ["Control", "OlderControl"]

SERVICE_MANAGER = 90.0
"""Seconds that it gives a server to end, before it kills it."""
LEAST_CONTEXT = 4


class Control:
    """Today's. The interface of our `Scheduler`, as far as clients and faults use it."""

    def __init__(
        self,
        *,
        hardware: Hardware,
        runners: RunnerFactory,
        policy: Policy,
        limits: Limits | None = None,
        gpu_overhead: int = 0,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.state = State(
            hardware=hardware,
            runners=runners,
            policy=policy,
            limits=limits or Limits(),
            on_event=on_event,
            keeps_figures=self.keeps_figures,
        )
        self._open: dict[int, tuple[Asked, Answer]] = {}
        """Connections, by number of request."""
        self._one_less = trio.Event()
        self._asked = 0
        self._closing = False
        self._running = False
        self.assemble()

    keeps_figures = True

    def assemble(self) -> None:
        state = self.state
        self.reload, self.eviction = Reload(state), Eviction(state)
        self.completed = Completed(state, Recovery(state))
        self.pending: Pending = Pending(state, self.reload, self.eviction, Loading(state, self.completed))

    @property
    def _steps(self) -> object:
        return self.state.changed

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled, which is the server's signal to end: what hangs then, hangs until `power_off`."""
        runtime = self.state.runtime
        self._running = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, name="machine")
            nursery.start_soon(self._lose_all, name="connections")
            await runtime.up.wait()
            runtime.go(self.pending.loop, name="pending loop")
            runtime.go(self.completed.loop, name="completed loop")
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self.close()

    # -- requests -------------------------------------------------------------------------------------------------

    async def acquire(self, demand: Demand) -> Lease:
        """Raises what the handler answers, or `ConnectionLostError`. Cancelled: the client has left."""
        await trio.lowlevel.checkpoint()
        runtime = self.state.runtime
        if runtime.gone or self._closing:
            raise ConnectionLostError
        asked, answer = self.admit(demand), Answer()
        self._open[asked.number] = (asked, answer)
        runtime.go(self._handle, asked, answer, name=f"handler of {asked.who}", recovers=True)
        try:
            await answer.given.wait()
        except BaseException:
            self.state.say(f"the client of {asked.who} has left", asked.key)
            self.forget(asked)
            asked.context.cancel()
            raise
        if answer.error is not None:
            self.forget(asked)
            raise answer.error
        assert answer.runner is not None
        if answer.runner.child is None:
            self.forget(asked)
            asked.context.cancel()
            raise RuntimeError("internal server error: nil pointer: the process of an unloaded runner")
        return Lease(self, asked, answer, answer.runner.child)

    def admit(self, demand: Demand) -> Asked:
        self._asked += 1
        options = compared(demand.options)
        options["num_ctx"] = max(demand.options.num_ctx, LEAST_CONTEXT)
        return Asked(self._asked, demand, options, Channel(1), keep_alive=demand.keep_alive)

    def forget(self, asked: Asked) -> None:
        self._open.pop(asked.number, None)
        self._one_less.set()
        self._one_less = trio.Event()

    async def _handle(self, asked: Asked, answer: Answer) -> None:
        try:
            await self.ask_for_runner(asked)
            # It listens to these two and to nothing else, not to its own client either (R01).
            case, what, _ = await select(Receive(asked.success), Receive(asked.failure))
        except Panic as panic:
            answer.give(None, RuntimeError(f"internal server error: {panic}"))
            asked.context.cancel()
            raise
        if isinstance(case, Receive) and case.channel is asked.success:
            answer.give(what, None)
        else:
            answer.give(None, what)
            asked.context.cancel()

    async def ask_for_runner(self, asked: Asked) -> None:
        """A runner that is there is given out past the queue, whoever waits for its end (R38)."""
        state = self.state
        async with state.map_lock:
            runner = state.loaded.get(asked.key)
        if runner is not None and not await self.reload.needed(runner, asked, asked.context):
            await use(state, asked, runner)
        else:
            await self.enqueue(asked)

    async def enqueue(self, asked: Asked) -> None:
        await preempt()
        if self.state.pending.offer(asked):
            self.state.say(f"{asked.who} queues", asked.key)
        else:
            await asked.failure.send(QueueFullError())

    def stop(self, key: str) -> None:
        self.state.runtime.go(self.eviction.stop, key, name=f"stop of {key}", recovers=True)

    def force_stop(self, key: str) -> None:
        """There is no such thing but the gentle one."""
        self.stop(key)

    def runtime_out_of_memory(self) -> None:
        self.state.runtime.go(self.after_runtime_oom, name="a call that found no memory", recovers=True)

    async def after_runtime_oom(self) -> None:
        await self.eviction.after_runtime_oom()

    def snapshot(self) -> tuple[str, ...]:
        """What is loaded, as it is told to those who ask; read without a lock."""
        names = []
        for runner in self.state.loaded.values():
            if runner.demand is None:
                self.state.broken.append(f"panic: nil pointer: the name of the unloaded {runner.who} (R20)")
            else:
                names.append(runner.demand.model.name)
        return tuple(names)

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The signal: drop all connections, end both loops, kill the children, exit - at once, in this order."""
        if self._closing or not self._running:
            return
        self._closing = True
        self.state.say("the server gets its signal to end")
        for asked, answer in list(self._open.values()):
            answer.lose()
            self.state.runtime.go(self._drop, asked, name=f"connection of {asked.who}")
        self.state.runtime.go(self._shut_down, name="shutdown")

    async def _drop(self, asked: Asked) -> None:
        """Whoever reads from a connection notices its end, in its own time."""
        await preempt()
        asked.context.cancel()

    async def _shut_down(self) -> None:
        """One after the other, and whoever waits in a loop is not answered."""
        state = self.state
        await preempt()
        state.ended.cancel()
        async with state.map_lock:
            if state.active is not None:
                await state.active.close()
                state.active = None
            for runner in list(state.loaded.values()):
                if runner.child is not None:
                    await runner.child.close()
        state.say("the server exits")
        state.runtime.vanish()

    async def drained(self) -> None:
        while self._open and not self.state.runtime.gone:
            await self._one_less.wait()

    async def stop_all(self) -> None:
        """Wait for the end of the server, as long as somebody who wants to restart it does."""
        self.close()
        with trio.move_on_after(SERVICE_MANAGER):
            await self.state.runtime.ended.wait()
        self.state.runtime.vanish()

    async def _lose_all(self) -> None:
        """Whatever ends the server's process, every client hears of it."""
        with trio.CancelScope(shield=True):
            await self.state.runtime.ended.wait()
        for asked, answer in list(self._open.values()):
            answer.lose()
            asked.context.cancel()

    def power_off(self) -> None:
        self.state.runtime.power_off()


class OlderControl(Control):
    keeps_figures = False

    def assemble(self) -> None:
        state = self.state
        self.reload, self.eviction = OldReload(state), OldEviction(state)
        self.completed = OldCompleted(state, OldRecovery(state))
        self.pending = OldPending(state, self.reload, self.eviction, OldLoading(state))

    def admit(self, demand: Demand) -> Asked:
        asked = super().admit(demand)
        asked.options["num_ctx"] = int(asked.options["num_ctx"] or 0) * max(self.state.policy.num_parallel, 1)
        asked.success = Channel()
        return asked

    async def ask_for_runner(self, asked: Asked) -> None:
        """Always through the queue."""
        await self.enqueue(asked)

    def stop(self, key: str) -> None:
        """There was no such thing: one asked for the model again, with a keep-alive of 0, and it had to be granted."""
        runner = self.state.loaded.get(key)
        if runner is not None and runner.demand is not None:
            demand = replace(runner.demand, keep_alive=0, slot=False)
            self.state.runtime.go(self._load_only, demand, name=f"stop of {key}", recovers=True)

    async def _load_only(self, demand: Demand) -> None:
        asked = self.admit(demand)
        await self._handle(asked, Answer())
        asked.context.cancel()

    async def after_runtime_oom(self) -> None:
        """Nothing."""
