"""The server's handle of one child process: start it, wait for it, ask whether it lives, kill it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from simulations.world.runners import SimulatedRunner
from trio_ollama.runners.contract import LaunchSpec, LoadReport, RunnerFactory

from .context import Context, ContextCanceledError
from .dice import preempt
from .runtime import Runtime

__all__ = ["PING_LIMIT", "Child"]

PING_LIMIT: Final = 10.0
PING_LIMIT_LOADING: Final = 120.0
LOOK: Final = 0.25
"""Seconds between looks at a child that loads."""


class Child:
    """One semaphore keeps calls below the number of slots; nothing else counts them."""

    def __init__(
        self, runtime: Runtime, factory: RunnerFactory, spec: LaunchSpec, stall: float, need: dict[str, int]
    ) -> None:
        self._runtime = runtime
        self._factory = factory
        self._stall = stall
        self.spec = spec
        self.need = need
        """Bytes it is expected to take, by device."""
        self.slots = trio.Semaphore(spec.parallel)
        self.process: SimulatedRunner | None = None
        self.report: LoadReport | None = None

    @property
    def pid(self) -> int:
        return -1 if self.process is None else self.process.pid

    @property
    def dead(self) -> bool:
        return self.process is None or self.process.exited is not None

    def start(self) -> None:
        """Raises what the factory raises."""
        process = self._factory.spawn(self.spec)
        assert isinstance(process, SimulatedRunner)
        self.process = process
        self._runtime.host(_serve, process.serve, name=f"child {process.pid}")

    async def wait_until_running(self, context: Context) -> None:
        """Raises `LoadFailedError`, or `ContextCanceledError`; whatever happens is seen at the next of its looks."""
        assert self.process is not None
        began, failure = trio.current_time(), None
        try:
            with context.governing():
                self.report = await self.process.ready(self._stall)
        except Exception as error:
            failure = error
        looks = math.ceil(round((trio.current_time() - began) / LOOK, 6))
        await trio.sleep_until(began + looks * LOOK)
        if failure is not None:
            raise failure

    async def ping(self, context: Context, *, loading: bool) -> bool:
        """Whether it says that it is well. A request over HTTP: others come first, and it may take its time."""
        process = self.process
        await preempt()
        if process is None or process.exited is not None or context.cancelled:
            return False
        if process.hangs:  # its health check hangs as well
            try:
                with context.governing(), trio.move_on_after(PING_LIMIT_LOADING if loading else PING_LIMIT):
                    await process.thawed.wait()
                    return process.exited is None
            except ContextCanceledError:
                return False
            return False
        return True

    async def close(self) -> None:
        """Kill it, without a warning, and wait until it is gone, without a limit."""
        if self.process is not None:
            self.process.kill()
            await self.process.gone.wait()


async def _serve(serve: Callable[[], Awaitable[object]]) -> None:
    """A child's life. A simulated fault of the one who watches it is not one of the process: watch it again."""
    for _ in range(2):
        failed = False
        try:
            await serve()
        except* ValueError:
            failed = True
        if not failed:
            return
