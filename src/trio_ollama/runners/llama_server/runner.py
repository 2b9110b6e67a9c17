"""A llama.cpp server in a child process, from its start until it is reaped; the same for both kinds."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio

from trio_ollama.runners.contract import (
    Exit,
    LaunchSpec,
    LoadFailedError,
    LoadReport,
    LoadStalledError,
    looks_like_out_of_memory,
)
from trio_ollama.runners.llama_server.calls import ChildCalls, StreamingCall
from trio_ollama.runners.llama_server.endpoint import Endpoint
from trio_ollama.runners.llama_server.http import ProtocolError, error_of
from trio_ollama.runners.llama_server.log import ChildLog
from trio_ollama.runners.llama_server.process import ChildProcess, Vitals
from trio_ollama.runners.llama_server.resident import resident

__all__ = ["LlamaServerRunner"]

logger = logging.getLogger(__name__)

HEALTH_TIMEOUT: Final = 0.2
FIRST_POLL: Final = 0.01
SLOWEST_POLL: Final = 0.25
LAST_LINES_TIMEOUT: Final = 0.2
"""Seconds for what a child wrote last to arrive, after the end of a load and of the process."""
AUTOPSY_TIMEOUT: Final = 0.5
"""Seconds between a broken connection and the end of the process that explains it."""
KILL_TIMEOUT: Final = 5.0
"""Seconds in which a killed process is expected to be gone (K)."""

OUTPUT_SIZE: Final = 64 * 1024

HINTS: Final = {
    -signal.SIGKILL: "killed from outside, perhaps by the kernel for want of memory",
    -signal.SIGILL: "this build of llama.cpp needs instructions that the CPU does not have",
    -signal.SIGABRT: "this build of llama.cpp failed a check of its own or does not fit the system's libraries",
    -signal.SIGSEGV: "this build of llama.cpp crashed",
}
"""What a death by a signal may mean when the child itself says nothing (R78)."""


class LlamaServerRunner:
    """Implements `contract.Runner`."""

    def __init__(self, spec: LaunchSpec, endpoint: Endpoint, process: ChildProcess, record: Path) -> None:
        """Own a process that has just been started; `record` is its note in the children's directory."""
        self._spec = spec
        self._process = process
        self._record = record
        self._log = ChildLog()
        self._calls = ChildCalls(endpoint, self._autopsy)
        self._exit: Exit | None = None
        self._gone = trio.Event()
        self._news = trio.Event()
        """The child has come to listen, or is gone. Wakes whoever waits for it to be ready."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exited(self) -> Exit | None:
        return self._exit

    async def serve(self) -> Exit:
        """See `contract.Runner.serve`. Gives up after 5 s on a process that cannot be killed, and says so."""
        try:
            async with trio.open_nursery() as nursery:
                try:
                    self._calls.open(nursery)
                    drained = trio.Event()
                    nursery.start_soon(self._drain, drained, name=f"runner process {self.pid}: output")
                    await self._process.wait()
                    with trio.move_on_after(LAST_LINES_TIMEOUT):
                        await drained.wait()
                finally:
                    self._process.kill()
                    self._bury()
                    self._calls.close()
                nursery.cancel_scope.cancel()
        finally:
            if self._process.status is None:
                with trio.move_on_after(KILL_TIMEOUT, shield=True):
                    await self._process.wait()
                if not self._bury():
                    logger.error("runner %d cannot be killed: it is left behind", self.pid)
            self._clean_up()
        assert self._exit is not None
        return self._exit

    async def ready(self, stall: float) -> LoadReport:
        """See `contract.Runner.ready`."""
        vitals = Vitals(self.pid)
        written, pause = -1, FIRST_POLL
        deadline = math.inf
        while True:
            self._raise_if_gone()
            with trio.move_on_after(HEALTH_TIMEOUT):
                if await self._is_ready():
                    break
            self._raise_if_gone()
            if vitals.moved() or self._log.bytes > written:
                written, deadline = self._log.bytes, trio.current_time() + stall
            if trio.current_time() >= deadline:
                lines = " | ".join(self._log.errors.lines)
                raise LoadStalledError("timed out waiting for llama-server to start" + (f" - {lines}" if lines else ""))
            await self._wait_for_news(min(pause, deadline - trio.current_time()))
            pause = min(1.5 * pause, SLOWEST_POLL)
        return await self._report()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def stream(self, path: str, body: Mapping[str, Any]) -> StreamingCall:
        return self._calls.stream(path, body)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._calls.ask(path, body)

    async def _drain(self, drained: trio.Event) -> None:
        """Read the output for as long as there is any: a full pipe would stop the child (R78)."""
        async with self._process.take_output() as output:
            while data := bytes(await output.receive_some(OUTPUT_SIZE)):
                was_listening = self._log.listening
                self._calls.slots.read(self._log.feed(data))
                if self._log.listening and not was_listening:
                    self._news.set()
                if logger.isEnabledFor(logging.DEBUG):
                    logger.debug("runner %d: %s", self.pid, data.decode(errors="replace").rstrip())
        drained.set()

    def _bury(self) -> bool:
        """Note the end of the process if it is reaped; True if it is."""
        if self._process.status is None:
            return False
        if self._exit is None:
            self._exit = Exit(self._process.status, self._log.errors.lines)
            logger.info("runner %d has ended: %s", self.pid, self._exit.describe())
            self._gone.set()
            self._news.set()
        return True

    def _clean_up(self) -> None:
        self._process.close()
        with contextlib.suppress(OSError):
            os.unlink(self._record)
        if not self._calls.endpoint.port:
            with contextlib.suppress(OSError):
                os.unlink(self._calls.endpoint.host)

    async def _autopsy(self) -> Exit | None:
        with trio.move_on_after(AUTOPSY_TIMEOUT):
            await self._gone.wait()
        return self._exit

    def _raise_if_gone(self) -> None:
        if self._exit is None:
            return
        text = f"llama-server process has terminated: {self._exit.describe()}"
        if not self._exit.lines and self._exit.code in HINTS:
            text += f" ({HINTS[self._exit.code]})"
        raise LoadFailedError(text, out_of_memory=looks_like_out_of_memory(" ".join(self._exit.lines)))

    async def _is_ready(self) -> bool:
        """One look at /health. Raises `LoadFailedError` if the child says that memory ran out for good."""
        try:
            status, answer = await self._calls.get("/health")
        except (OSError, EOFError, ProtocolError):
            return False  # not listening yet, or no longer
        state = str(answer.get("status", "")) if isinstance(answer, dict) else ""
        if status == 200 and state == "ok":
            return True
        text = state or error_of(answer, str(answer))[0]
        if text.lower() in {"loading model", "no slot available"}:
            return False
        told = " | ".join((text, *self._log.errors.lines))
        if looks_like_out_of_memory(told) and not self._log.errors.recoverable:  # R52
            raise LoadFailedError(f"llama-server reported out-of-memory during startup: {told}", out_of_memory=True)
        return False

    async def _report(self) -> LoadReport:
        """What the child says of itself once it is ready. Raises `LoadFailedError` if it is not our child."""
        if not self._log.listening:
            await self._wait_for_news(LAST_LINES_TIMEOUT)
        context, model = 0, self._spec.model
        with contextlib.suppress(OSError, EOFError, ProtocolError, KeyError, TypeError, ValueError, AttributeError):
            _, props = await self._calls.get("/props")
            context = int(props["default_generation_settings"]["n_ctx"])
            model = props.get("model_path", model)
        if not context:
            await self._autopsy()
            self._raise_if_gone()
            raise LoadFailedError("llama-server does not tell its properties")
        self._raise_if_gone()
        if model != self._spec.model:
            raise LoadFailedError(f"llama-server serves another model: {model}")  # R82
        self._log.errors.clear()
        report = self._log.buffers.report(context, _size(self._spec.model))
        memory = await trio.to_thread.run_sync(resident, self.pid, abandon_on_cancel=True)
        self._raise_if_gone()
        return replace(report, resident=memory[0], private=memory[1]) if memory is not None else report

    async def _wait_for_news(self, seconds: float) -> None:
        self._news = trio.Event()
        if self._exit is None:
            with trio.move_on_after(seconds):
                await self._news.wait()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
