"""Simulated runners: the contract of the real ones, with a process that exists on paper only."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import trio

from trio_ollama.hardware.contract import CPU
from trio_ollama.runners.contract import (
    HOST,
    Exit,
    LaunchSpec,
    LoadFailedError,
    LoadReport,
    LoadStalledError,
    RunnerDiedError,
    looks_like_out_of_memory,
)

from .behaviour import Behaviour
from .calls import SimulatedCall
from .hardware import GIB, SimulatedHardware
from .loop import Nap, sleep

__all__ = ["SimulatedRunner"]

REAP_LIMIT: Final = 5.0
"""Seconds in which a killed process is expected to be gone, as with the real ones."""


class SimulatedRunner:
    """Implements `Runner`. Its process lives while `serve` runs."""

    def __init__(
        self,
        pid: int,
        spec: LaunchSpec,
        behaviour: Behaviour,
        hardware: SimulatedHardware,
        footprint: Mapping[str, int],
        *,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._pid = pid
        self._tell = note
        self.spec = spec
        self.behaviour = behaviour
        self._hardware = hardware
        computes_on = [id_ for id_ in footprint if id_ != CPU] or [CPU]
        surplus = dict.fromkeys(computes_on, round(behaviour.surplus * GIB))
        self._footprint = {id_: amount + surplus.get(id_, 0) for id_, amount in footprint.items()}
        self.beside_gpus = footprint.get(CPU, 0) if spec.visible_devices else 0
        """Bytes that it has in RAM for its whole life although it may use GPUs: there was no room for them (R35), or
        they were not to be there."""
        self.overfull = 0
        """Bytes that it took although they were not there."""
        self.started_at = trio.current_time()
        self.loaded_at: float | None = None
        self.ended_at: float | None = None
        self._allocated = False
        self._exit: Exit | None = None
        self._ends_at, self._end_code = math.inf, 0
        self._watchers: dict[Nap, None] = {}
        """Of those that wait for its end."""
        self._loaded = trio.Event()
        self._refused = False
        self._news = trio.Event()
        self.gone = trio.Event()
        self.waiting: dict[SimulatedCall, None] = {}
        """Calls that wait for an answer."""
        self._nursery: trio.Nursery | None = None
        self.watched_in_vain = False
        """It ended only after everybody had given up waiting for that."""
        self._tokens = 0
        self._faulty = False
        """`serve` has failed in a way that the contract does not know."""
        self.unsettled: list[SimulatedCall] = []
        """Calls that occupy a slot."""
        self.most_at_once = 0
        """The most calls that ever occupied slots together."""
        self.signals: list[tuple[float, str]] = []
        """What it was sent, and when."""
        self.hangs = behaviour.hangs
        """It answers nothing."""
        self.thawed = trio.Event()
        """It hangs no longer, or never will."""

    # -- the contract ---------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def exited(self) -> Exit | None:
        return self._exit

    @property
    def footprint(self) -> Mapping[str, int]:
        """Bytes by device that it takes once it loads."""
        return self._footprint

    async def serve(self) -> Exit:
        if self._faulty and self.behaviour.reaping_raises:
            raise ValueError("serve fails once more")
        try:
            async with trio.open_nursery() as nursery:
                if not self._faulty:
                    self._nursery = nursery
                    nursery.start_soon(self._work, name=f"process {self.pid}")
                await self._reaped()
                nursery.cancel_scope.cancel()
        except* ValueError:
            self._faulty = True  # and the process is left as it is
            raise
        finally:
            self._nursery = None
            if self._exit is None and not self._faulty:
                self.kill()
                with trio.move_on_after(REAP_LIMIT, shield=True):
                    await self._reaped()
        assert self._exit is not None
        return self._exit

    async def ready(self, stall: float) -> LoadReport:
        if self.behaviour.ready_raises is not None:
            await sleep(self.behaviour.load_time)
            raise self.behaviour.ready_raises
        stalls = self.behaviour.stalls_loading
        if stalls is None:
            await self._news.wait()
        else:
            with trio.move_on_after(stalls * self.behaviour.load_time + stall):
                await self._news.wait()
        if not self._news.is_set():
            raise LoadStalledError("timed out waiting for llama-server to start")
        if self._exit is not None:
            text = f"llama-server process has terminated: {self._exit.describe()}"
            raise LoadFailedError(text, out_of_memory=looks_like_out_of_memory(text))
        if self._refused:
            text = self.behaviour.refuses_to_load or ""
            raise LoadFailedError(text, out_of_memory=looks_like_out_of_memory(text))
        total, host = sum(self._footprint.values()), self._footprint.get(CPU, 0)
        gpus = self.spec.visible_devices or ()
        buffers = {(f"GPU{gpus.index(id_)}", "model"): size for id_, size in self._footprint.items() if id_ in gpus}
        return LoadReport(self.spec.num_ctx, total, total - host, {**buffers, (HOST, "model"): host}, host, host)

    def terminate(self) -> None:
        self._note("TERM")
        if self.behaviour.term_time is not None:
            self._end(0 if self._loaded.is_set() else -signal.SIGTERM, self.behaviour.term_time)

    def kill(self) -> None:
        self._note("KILL")
        if self.behaviour.kill_time is not None:
            self._end(-signal.SIGKILL, self.behaviour.kill_time)

    def stream(self, path: str, body: Mapping[str, Any]) -> SimulatedCall:
        return SimulatedCall(self, path, body)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        async with self.stream(path, body) as call:
            return (await call.receive())[0]

    # -- what happens to the process -------------------------------------------------------------------------------

    def crash(self) -> None:
        """It ends by itself, now."""
        self._end(self.behaviour.exit_code, 0)

    def hang(self) -> None:
        """It answers nothing from now on."""
        if self.thawed.is_set() and not self.gone.is_set():
            self.thawed = trio.Event()
        self.hangs = True

    def thaw(self) -> None:
        """It answers again."""
        self.hangs = False
        self.thawed.set()

    def let_go(self, usual: Behaviour) -> None:
        """It ends as others do when it is told to; if it was killed, the operating system lets it die after all."""
        self.behaviour = replace(self.behaviour, term_time=usual.term_time, kill_time=usual.kill_time)
        if any(name == "KILL" for _, name in self.signals):
            self._end(-signal.SIGKILL, 0)
            if not self._watchers:
                self.watched_in_vain = True
                self._die()

    def _note(self, name: str) -> None:
        if self._exit is None:
            self.signals.append((trio.current_time(), name))
            self._tell(f"process {self.pid} gets SIG{name}")

    def _end(self, code: int, delay: float) -> None:
        """The process ends in `delay` seconds, unless something ends it earlier."""
        at = trio.current_time() + delay
        if at < self._ends_at:
            self._ends_at, self._end_code = at, code
            for nap in self._watchers:
                nap.end()

    async def _reaped(self) -> None:
        nap = Nap()
        self._watchers[nap] = None
        try:
            while self._exit is None:
                await nap.sleep_until(self._ends_at)
                if trio.current_time() >= self._ends_at and not self.gone.is_set():
                    self._die()
        finally:
            del self._watchers[nap]

    def _die(self) -> None:
        lines = self.behaviour.exit_lines if self._end_code > 0 else ()
        self._exit = Exit(self._end_code, lines)
        self.ended_at = trio.current_time()
        self._give_back()
        self._tell(f"process {self.pid} ends: {self._exit.describe()}")
        self.gone.set()
        for call in self.waiting:
            call.wake()
        self.thawed.set()
        self._news.set()
        for unsettled in list(self.unsettled):
            unsettled.settle()

    def _allocate(self) -> None:
        self._allocated = True
        self.overfull = self._hardware.short_of(self._footprint)
        for id_, amount in self._footprint.items():
            self._hardware.take(id_, amount, self.pid)

    def _give_back(self) -> None:
        if self._allocated:
            self._allocated = False
            for id_, amount in self._footprint.items():
                self._hardware.take(id_, -amount, self.pid)

    async def _work(self) -> None:
        """The load and, after it, whatever the process does by itself."""
        how = self.behaviour
        if how.dies_loading == 0:
            return self.crash()
        await sleep(how.load_time / 2)
        if self.gone.is_set():
            return  # it ended in this very instant, and takes nothing any more
        self._allocate()
        if how.dies_loading is not None or (how.surplus and self.overfull):
            return self.crash()
        if how.stalls_loading is not None:
            return
        await sleep(how.load_time / 2)
        if self.gone.is_set():
            return
        if how.serve_raises is not None:
            raise how.serve_raises
        self._refused = how.refuses_to_load is not None
        self._news.set()
        if self._refused:
            return
        self.loaded_at = trio.current_time()
        self._loaded.set()
        if how.dies_idle is not None:
            await sleep(how.dies_idle)
            self.crash()

    # -- calls ------------------------------------------------------------------------------------------------------

    def occupy(self, call: SimulatedCall) -> None:
        self.unsettled.append(call)
        self.most_at_once = max(self.most_at_once, len(self.unsettled))

    @property
    def ending(self) -> bool:
        """It will be gone by the end of this instant."""
        return self._ends_at <= trio.current_time()

    def settle_later(self, call: SimulatedCall) -> None:
        """The child notices that a call was closed early; nobody hears of it once nobody watches the child."""
        if self.gone.is_set():
            call.settle()
        elif self._nursery is not None and self.behaviour.settle_time is not None:
            self._nursery.start_soon(self._settle, call, name=f"process {self.pid}: aborted call")

    async def _settle(self, call: SimulatedCall) -> None:
        await sleep(self.behaviour.settle_time or 0)
        call.settle()

    def count_token(self) -> None:
        self._tokens += 1
        if self._tokens == self.behaviour.dies_after_tokens:
            self.crash()

    def died(self, text: str) -> RunnerDiedError:
        how = f": {self._exit.describe()}" if self._exit is not None else ""
        return RunnerDiedError(text + how, out_of_memory=looks_like_out_of_memory(how))
