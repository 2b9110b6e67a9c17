"""What the scheduler and the server may ask of a runner, however it is hosted.

A *runner* is one child process with llama.cpp's server and one model. The scheduler's supervisor owns it: it calls
`RunnerFactory.spawn` (synchronous: the process has an owner before the first checkpoint, R68), keeps `Runner.serve`
running for the whole life of the process, waits for `Runner.ready`, and ends it with `terminate` and `kill`.
Requests use `Runner.stream`, one fresh connection per call (no pool, so a cancelled call can leak nothing).

Simulated runners implement the same Protocols and pass the same contract tests.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import trio

__all__ = [
    "HOST",
    "MEDIA_MARKER",
    "Call",
    "Exit",
    "LaunchSpec",
    "LoadFailedError",
    "LoadReport",
    "LoadStalledError",
    "OpenCall",
    "Runner",
    "RunnerDiedError",
    "RunnerError",
    "RunnerFactory",
    "RunnerRefusedError",
    "SpawnError",
    "looks_like_out_of_memory",
]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything that decides how a child is started (runner-and-memory formula names in brackets).

    Paths are absolute. `num_ctx` is per slot; the child gets `num_ctx * parallel`.
    """

    model: str
    num_ctx: int
    parallel: int = 1
    num_batch: int = 512
    gpu_layers: int = -1
    """-1 automatic, 0 CPU only, else that many layers on GPUs."""
    main_gpu: int | None = None
    use_mmap: bool | None = None
    """None leaves the choice to llama.cpp."""
    direct_io: bool = False
    """Read the file past the page cache; counts for more than `use_mmap`."""
    num_thread: int = 0
    """0 leaves the choice to llama.cpp."""
    flash_attention: str = "auto"
    """`on`, `off` or `auto`."""
    cache_type: str = ""
    """Element type of the KV cache; empty for llama.cpp's default (f16)."""
    context_shift: bool = False
    embeddings: bool = False
    """Serve embeddings; generation works on such a child, too."""
    pooling: str = ""
    """`mean` for a completion model that is asked for embeddings; empty for the model's own."""
    prompt_cache_mib: int = 0
    projector: str | None = None
    """An image encoder (also for sounds); the model's own path where the encoder is inside it."""
    projector_on_gpu: bool = True
    image_min_tokens: int = 0
    """0 leaves it to the projector."""
    fit_margin: int = 0
    """Bytes to keep free on each GPU where llama.cpp chooses the layers; 0 for its default."""
    adapters: tuple[str, ...] = ()
    chat_template: str = ""
    """llama.cpp's own template of this name instead of that of the weights."""
    draft: str | None = None
    """A file of its own that drafts; None where nobody does, or the model itself."""
    draft_kind: str = ""
    """`simple` (a small model), `mtp`, `dflash` (heads made for this model); empty: nobody drafts."""
    draft_num_predict: int = 0
    """Tokens of one draft; 0: nobody drafts."""
    visible_devices: tuple[str, ...] | None = None
    """UUIDs of the GPUs the child may see; None for no filter, () for none."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child process ended. `code` is negative for a death by signal, as in `subprocess`."""

    code: int
    lines: tuple[str, ...] = ()
    """The last error lines it wrote, at most 8 KiB."""

    def describe(self) -> str:
        """Exit status or signal name, then the captured lines, each once (R78)."""
        if self.code == 0:
            status = "exit status 0"
        elif self.code > 0:
            status = f"exit status {self.code}"
        else:
            try:
                status = f"signal {signal.Signals(-self.code).name}"
            except ValueError:
                status = f"signal {-self.code}"
        return ": ".join([status, *([" | ".join(self.lines)] if self.lines else [])])


MEDIA_MARKER: Final = f"<__media_{secrets.token_hex(16)}__>"
"""Where in a raw prompt of `/completion` an image belongs. Random: a text that happens to spell it would be refused, or
get another's image."""

HOST: Final = "CPU"
"""The device of buffers that lie in RAM."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What is known of a child when it has become ready. All sizes in bytes."""

    context: int
    """Effective context per slot, in tokens."""
    total_bytes: int
    """Sum of all buffers; of those on GPUs alone where all layers are there. 0 if the child said nothing of any."""
    gpu_bytes: int
    """The part of `total_bytes` on GPUs; 0 on the CPU."""
    buffers: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By device (the runner's own name, such as `CUDA0`, or `HOST`) and kind: model, KV, compute, output, RS, LoRA.
    Empty if the child said nothing of any: then nobody knows, and it is not zero (I19)."""
    resident: int | None = None
    """Of the child and its children, as the kernel counts; None if it would not say."""
    private: int | None = None
    """The part of `resident` that belongs to no file and is shared with nobody: it cannot be dropped."""

    @property
    def bytes_by_device(self) -> Mapping[str, int]:
        """Sum of the buffers on each device; without `HOST` if there are none in RAM."""
        sums: dict[str, int] = {}
        for (device, _), size in self.buffers.items():
            sums[device] = sums.get(device, 0) + size
        return sums


class RunnerError(Exception):
    """A runner could not do what it was asked; the text is fit for a client."""

    out_of_memory = False


class SpawnError(RunnerError):
    """The process could not be started."""


class LoadFailedError(RunnerError):
    """The child exited, or said that it cannot load the model. Nothing of it may be used."""

    def __init__(self, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class LoadStalledError(LoadFailedError):
    """No sign of life during a load for the stall limit (R83)."""


class RunnerDiedError(RunnerError):
    """The child ended, or closed the connection, in the middle of a call (R80)."""

    def __init__(self, message: str, *, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory


class RunnerRefusedError(RunnerError):
    """The child answered a call with an error of its own: `status` is its HTTP status, the text its `error.message`."""

    def __init__(self, status: int, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.out_of_memory = looks_like_out_of_memory(message)


class Call(Protocol):
    """One streaming call to a child, open for the time of its `async with`."""

    @property
    def settled(self) -> trio.Event:
        """Set once the child works no longer for this call: its terminal event was read, or it was closed early and
        the child confirmed that the slot is free (its `slot release` log line), or the child is gone (R08)."""
        ...

    async def receive(self) -> list[dict[str, Any]]:
        """All complete events that one read brought, parsed; an empty list after the end of the stream.

        An answer that is a plain JSON object counts as one event.
        Raises `RunnerDiedError` if the stream breaks off, `RunnerRefusedError` for an error event, and what the call
        was aborted with.
        """
        ...


class OpenCall(AbstractAsyncContextManager[Call], Protocol):
    """What `Runner.stream` returns: entered, it is a `Call`."""

    @property
    def settled(self) -> trio.Event:
        """As `Call.settled`, and true to its word from the start: also if entering is cancelled halfway (R08)."""
        ...

    def abort(self, error: Exception) -> None:
        """The runner is taken away, or the answer no longer wanted: who waits in this call, entering it or for its
        events, gets `error` at once, and so does whoever asks it for more (R81).

        Synchronous, and waits for nothing: the child may be beyond answering. The connection is closed by the one who
        leaves the call, as ever. Only the first error counts.
        """
        ...


class Runner(Protocol):
    """One child process from its start until it is reaped."""

    @property
    def pid(self) -> int: ...

    @property
    def exited(self) -> Exit | None:
        """Set as soon as the process is reaped; None before."""
        ...

    async def serve(self) -> Exit:
        """Drain the output and watch the process until it is reaped; must run for the whole life of the child.

        If cancelled, it kills the process and reaps it, under a bound, before it lets go.
        """
        ...

    async def ready(self, stall: float) -> LoadReport:
        """Wait until the child answers that it is ready, accepted only while it is alive (R82).

        `stall`: seconds without a sign of life after which `LoadStalledError` is raised; `math.inf` for none.
        Raises `LoadFailedError` with the child's reason if it exits or reports failure.
        """
        ...

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM). Harmless when it is already gone."""
        ...

    def kill(self) -> None:
        """End the process group now (SIGKILL). Harmless when it is already gone."""
        ...

    def stream(self, path: str, body: Mapping[str, Any]) -> OpenCall:
        """POST `body` and stream the answer's events over a fresh connection.

        Entering waits for the answer's head: raises `RunnerRefusedError` for a status >= 400 and `RunnerDiedError`
        when the child cannot be reached. Leaving closes the connection at once, cancelled or not.
        """
        ...

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """A short call (tokenize, detokenize, apply-template, embeddings of one input): POST, return the JSON answer.

        Same errors as `stream`; cancelling closes the connection.
        """
        ...


class RunnerFactory(Protocol):
    """Starts children. `describe` names the kind for logs and people."""

    def describe(self) -> str: ...

    def spawn(self, spec: LaunchSpec) -> Runner:
        """Start a child. Synchronous and quick; raises `SpawnError`."""
        ...


OUT_OF_MEMORY_MARKS: Sequence[str] = (
    "out of memory",
    "out of device memory",
    "cudamalloc failed",
    "hipmalloc failed",
    "failed to allocate",
    "allocation failed",
    "not enough memory",
    "insufficient memory",
    "vk_error_out_of_device_memory",
    "erroroutofmemory",
)


def looks_like_out_of_memory(text: str) -> bool:
    """True if a runner's text speaks of exhausted memory (the substrings llama.cpp's backends use, R48)."""
    lowered = text.lower()
    return any(mark in lowered for mark in OUT_OF_MEMORY_MARKS)
