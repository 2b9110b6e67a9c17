"""What `serve --record FILE` keeps of each request: sizes, instants and outcomes, to plan with (docs/plan.md).

Never a word of a prompt or of an answer, nor who asked. Each line is a JSON object that says in `line` what it is:
`header` (the machine and the policy, once per start), `model` (before its first use), `load` (when it is over),
`unload` (when it is decided), `gone`, `request` (when it has ended), `left_out`. Instants are seconds since the
header's `started`, durations seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import trio

from trio_ollama import __version__
from trio_ollama.scheduler import FOREVER, Demand, Lease, LoadOptions, ModelFacts, Policy, SchedulingError
from trio_ollama.scheduler.core.events import DrainStarted, Event, LoadFailed, LoadStarted, RunnerGone, RunnerLoaded
from trio_ollama.scheduler.core.values import DeviceFacts
from trio_ollama.server.errors import CanceledError
from trio_ollama.server.inference.events import Done, Token
from trio_ollama.server.inference.events import Event as AnswerEvent
from trio_ollama.server.inference.watch import Watch
from trio_ollama.server.record_file import RecordFile

__all__ = ["FORMAT", "Recorder", "recording"]

FORMAT: Final = 1
"""Of the lines; a reader that knows a smaller one only should refuse."""

_USUAL: Final = LoadOptions()


class Recorder:
    """Makes lines of what happens. All methods are synchronous and raise nothing."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._began = trio.current_time()
        self._models: dict[str, ModelFacts] = {}
        self._loads: dict[int, LoadStarted] = {}
        """By generation, as long as it lives."""
        self._ready: dict[int, float] = {}

    async def run(self) -> None:
        """Write until cancelled."""
        await self._file.run()

    def header(
        self, devices: Sequence[DeviceFacts], policy: Policy, *, gpu_overhead: int, default_context: int
    ) -> None:
        """The recording starts; what happened before it is not in it."""
        self._began = trio.current_time()
        self._file.put(
            {
                "line": "header",
                "format": FORMAT,
                "version": __version__,
                "started": datetime.now(UTC),
                "devices": [asdict(device) for device in devices],
                "policy": asdict(policy),
                "gpu_overhead": gpu_overhead,
                "default_context": default_context,
            }
        )

    def watch(self, stack: AsyncExitStack, demand: Demand, arrived: float) -> Watch:
        """Look at a request until its `stack` is closed, and write its line then."""
        facts = demand.model
        if self._models.get(facts.name) != facts:
            self._models[facts.name] = facts
            self._file.put({"line": "model", "at": self._at(arrived), "name": facts.name, **_model(facts)})
        watch = RequestWatch(self, demand, arrived)
        stack.push(watch.exit)
        return watch

    def happened(self, event: Event) -> None:
        """Take note of what the scheduler says."""
        at = self._at(event.at / 1e9)
        match event:
            case LoadStarted(gen=gen):
                self._loads[gen] = event
            case RunnerLoaded(gen=gen):
                self._ready[gen] = event.at / 1e9
                measured = {"bytes": event.total_bytes, "gpu_bytes": event.gpu_bytes}
                self._file.put({**self._load(gen), "seconds": _short(event.took / 1e9), **measured})
            case LoadFailed(gen=gen):
                self._file.put({**self._load(gen), "seconds": at - self._load(gen)["at"], "failed": True})
            case DrainStarted(gen=gen):
                line = {"line": "unload", "at": at, "model": event.model, "gen": gen, "because": str(event.because)}
                self._file.put({**line, "leases": event.leases})
            case RunnerGone(gen=gen):
                self._file.put({"line": "gone", "at": at, "model": event.model, "gen": gen})
                self._loads.pop(gen, None)
                self._ready.pop(gen, None)

    def ended(self, line: dict[str, Any], arrived: float) -> None:
        """A request has ended."""
        self._file.put({"line": "request", "at": self._at(arrived), **line})

    def loading(self, gen: int, begin: float, end: float) -> float:
        """How much of the time from `begin` to `end` generation `gen` was loading."""
        load = self._loads.get(gen)
        return 0.0 if load is None else max(0.0, min(end, self._ready.get(gen, end)) - max(begin, load.at / 1e9))

    def reserved(self, gen: int) -> int:
        """Bytes that generation `gen` was predicted to take, on all devices."""
        load = self._loads.get(gen)
        return 0 if load is None else sum(amount for _, amount in load.reservation)

    def _load(self, gen: int) -> dict[str, Any]:
        load = self._loads[gen]
        return {
            "line": "load",
            "at": self._at(load.at / 1e9),
            "model": load.model,
            "gen": gen,
            "reserved": dict(load.reservation),
            "placement": load.kind,
            "num_ctx": load.num_ctx,
            "num_batch": load.num_batch,
            "parallel": load.parallel,
        }

    def _at(self, instant: float) -> float:
        return _short(instant - self._began)


class RequestWatch(Watch):
    """One request, from its arrival at the scheduler to its end."""

    def __init__(self, recorder: Recorder, demand: Demand, arrived: float) -> None:
        self._recorder = recorder
        self._arrived = arrived
        self._asked = trio.current_time()
        self._outcome = ""
        self._error = ""
        self._line = _request(demand)
        self._tokens = 0
        self._prompt = 0

    def granted(self, lease: Lease) -> None:
        now = trio.current_time()
        load = self._recorder.loading(lease.generation, self._asked, now)
        reserved = self._recorder.reserved(lease.generation)
        self._line |= {"gen": lease.generation, "reserved": reserved}
        self._line |= {"queue": _short(now - self._asked - load), "load": _short(load)}

    def failed(self, error: Exception | str) -> None:
        if isinstance(error, SchedulingError):
            self._outcome = "refused"
        elif isinstance(error, CanceledError):
            self._outcome = "cancelled"
        self._error = error if isinstance(error, str) else type(error).__name__

    def heard(self, events: Sequence[AnswerEvent], prompt_tokens: int) -> None:
        self._prompt = prompt_tokens or self._prompt
        self._tokens += sum(isinstance(event, Token) for event in events)
        if events and "first" not in self._line:
            self._line["first"] = self._since()

    def done(self, done: Done) -> None:
        self._outcome = "answered"
        self._prompt, self._tokens = done.prompt_tokens or self._prompt, done.output_tokens or self._tokens
        self._line |= {
            "total": self._since(),
            "cached_tokens": done.cached_tokens,
            "prompt_time": _short(done.prompt_ns / 1e9),
            "output_time": _short(done.output_ns / 1e9),
        }

    def embedded(self, inputs: int, tokens: int) -> None:
        self._outcome = "answered"
        self._prompt = tokens
        self._line |= {"inputs": inputs, "first": self._since(), "total": self._since()}

    def exit(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """Called with how the request's stack is left."""
        if not self._outcome:
            self._outcome = "cancelled" if value is not None and _is_cancelled(value) else "failed"
        outcome, left = self._outcome, self._outcome == "cancelled"
        line = {**self._line, "outcome": outcome, "prompt_tokens": self._prompt, "output_tokens": self._tokens}
        line.setdefault("total", self._since())
        if left:
            line["left"] = line["total"]
        elif outcome != "answered" and self._error:
            line["error"] = self._error
        self._recorder.ended(line, self._arrived)

    def _since(self) -> float:
        return _short(trio.current_time() - self._arrived)


@contextmanager
def recording(path: Path | None) -> Iterator[Recorder | None]:
    """A recorder that appends to `path`, or none; all that was recorded is in the file afterwards.

    Raises `OSError` if the file cannot be written.
    """
    if path is None:
        yield None
        return
    file = RecordFile(path)
    try:
        yield Recorder(file)
    finally:
        file.close()


def _request(demand: Demand) -> dict[str, Any]:
    """What a demand asks for; of the options only those that are not as always."""
    options = demand.options
    what = "generate" if demand.slot else "embed" if options.embeddings else "load"
    line: dict[str, Any] = {"model": demand.model.name, "what": what, "size": demand.model.file_size}
    line["options"] = {
        field.name: value
        for field in fields(options)
        if (value := getattr(options, field.name)) != getattr(_USUAL, field.name)
    }
    if demand.keep_alive is not None:
        line["keep_alive"] = -1 if demand.keep_alive == FOREVER else _short(demand.keep_alive / 1e9)
    return line


def _model(facts: ModelFacts) -> dict[str, Any]:
    """What a model's memory is computed from. Of paths only the last part: folders tell who somebody is."""
    return {
        "weights": Path(facts.path).name,
        "file_size": facts.file_size,
        "architecture": facts.architecture,
        "families": facts.families,
        "layers": facts.layers,
        "kv_heads": facts.kv_heads,
        "head_dim": facts.head_dim,
        "train_context": facts.train_context,
        "completion": facts.completion,
        "vision": facts.vision,
        "pooled": facts.pooled,
        "projector_size": facts.projector_size,
    }


def _is_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_cancelled, error.exceptions))
    return isinstance(error, trio.Cancelled)


def _short(seconds: float) -> float:
    return round(seconds, 6)
