"""Simulated calls to a simulated runner: what the child answers, and when, and what becomes of it if it ends."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import trio

from trio_ollama.runners.contract import RunnerRefusedError

from .loop import Nap

if TYPE_CHECKING:
    from .runners import SimulatedRunner

__all__ = ["BROKEN_OFF", "UNREACHABLE", "SimulatedCall"]

AUTOPSY_TIME: Final = 0.005
"""Seconds between the end of a process and the words of its broken connections."""
SLOTLESS: Final = frozenset({"/tokenize", "/detokenize", "/apply-template"})
UNREACHABLE: Final = "model runner has unexpectedly stopped, this may be due to resource limitations"
BROKEN_OFF: Final = "an error was encountered while running the model"


class SimulatedCall:
    """One call: the context manager and what it yields, as with the real runners."""

    def __init__(self, runner: SimulatedRunner, path: str, body: Mapping[str, Any]) -> None:
        self._runner = runner
        self._path = path
        self._body = body
        self.settled = trio.Event()
        self._left = int(body.get("n_predict", 5))
        self._given = 0
        self._prompt_done = False
        self._sent = False
        self._over = False
        self._nap = Nap()
        self._frozen: trio.CancelScope | None = None
        self._aborted: Exception | None = None

    @property
    def _generates(self) -> bool:
        return self._path not in SLOTLESS and self._path != "/v1/embeddings"

    def settle(self) -> None:
        """The child works no longer for this call."""
        if not self.settled.is_set():
            self.settled.set()
            if self in self._runner.unsettled:
                self._runner.unsettled.remove(self)

    async def __aenter__(self) -> SimulatedCall:
        runner = self._runner
        try:
            await trio.lowlevel.checkpoint()  # to connect
            if runner.gone.is_set():
                raise runner.died(UNREACHABLE)
            if self._path not in SLOTLESS:
                runner.occupy(self)
            self._sent = True
            self._unless_aborted()
            await self._read_prompt()
            if runner.behaviour.refuses_calls is not None:
                self._finish()
                raise RunnerRefusedError(500, runner.behaviour.refuses_calls)
            if self._generates and self._prompt > runner.spec.num_ctx:
                self._finish()
                text = f"request ({self._prompt} tokens) exceeds the available context size"
                raise RunnerRefusedError(400, text, kind="exceed_context_size_error")
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def abort(self, error: Exception) -> None:
        self._aborted = self._aborted or error
        self._nap.end()
        if self._frozen is not None:
            self._frozen.cancel()

    def wake(self) -> None:
        """The child has ended: wait no longer for its answer."""
        self._nap.end()

    def _unless_aborted(self) -> None:
        if self._aborted is not None:
            raise self._aborted

    async def _read_prompt(self) -> None:
        """The child's work before the head of its answer."""
        await self._wait(self._runner.behaviour.prompt_time, UNREACHABLE)

    @property
    def _prompt(self) -> int:
        return len(str(self._body.get("prompt", "")).split())

    async def receive(self) -> list[dict[str, Any]]:
        runner = self._runner
        self._unless_aborted()
        if self._over:
            await trio.lowlevel.checkpoint()
            return []
        if not self._generates:
            await self._wait(runner.behaviour.token_time, BROKEN_OFF)
            self._finish()
            return [self._answer()]
        if not self._prompt_done:
            self._prompt_done = True
            await self._wait(0, BROKEN_OFF)
            return [{"prompt_progress": {"total": self._prompt, "processed": self._prompt}}]
        # The last token comes together with the end: as long after the one before as if they came one by one.
        last = self._given + 1 == self._left
        await self._wait(runner.behaviour.token_time * (2 if last else 1), BROKEN_OFF)
        events: list[dict[str, Any]] = []
        if self._given < self._left:
            self._given += 1
            events.append({"content": f"t{self._given} ", "stop": False})
            runner.count_token()
        if self._given == self._left and not runner.ending:
            self._finish()
            events.append({"content": "", "stop": True, "timings": {"predicted_n": self._given}})
        return events

    def _answer(self) -> dict[str, Any]:
        if self._path == "/tokenize":
            return {"tokens": list(range(len(str(self._body.get("content", "")).split())))}
        return {"data": [{"embedding": [1.0, 0.0]}]}

    async def _wait(self, seconds: float, phase: str) -> None:
        """The child takes that long for its next answer, if it lives to give it."""
        runner = self._runner
        runner.waiting[self] = None
        try:
            await self._nap.sleep(0 if runner.gone.is_set() else seconds)
        finally:
            del runner.waiting[self]
        if runner.hangs and self._aborted is None:
            with trio.CancelScope() as self._frozen:
                await runner.thawed.wait()
        if runner.gone.is_set() and self._aborted is None:
            await self._nap.sleep(AUTOPSY_TIME)
            self._unless_aborted()
            raise runner.died(phase)
        self._unless_aborted()

    def _finish(self) -> None:
        self._over = True
        self.settle()

    def _leave(self) -> None:
        if not self._sent or self._over:
            self.settle()
        else:
            self._over = True
            self._runner.settle_later(self)
