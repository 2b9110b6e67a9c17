"""What the control remembers of a request and of a runner."""

from __future__ import annotations

from dataclasses import dataclass, field

from trio_ollama.scheduler import Demand, LoadOptions

from .channel import Channel
from .child import Child
from .context import Context
from .mutex import Mutex
from .runtime import Timer

__all__ = ["UNSIGNED", "Asked", "Loaded", "Options", "compared"]

UNSIGNED = (1 << 64) - 1
"""Go's counts and bytes have 64 bits and no sign: what goes below zero comes out on top."""

Options = dict[str, int | bool | None]
"""The options that a runner is compared by."""

_COMPARED = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "draft_num_predict")


def compared(options: LoadOptions) -> Options:
    return {name: getattr(options, name) for name in _COMPARED}


@dataclass(slots=True, eq=False)
class Asked:
    """One request. Its context ends when its handler is done, or its client has gone."""

    number: int
    demand: Demand
    options: Options
    success: Channel[Loaded]
    failure: Channel[Exception] = field(default_factory=lambda: Channel(1))
    context: Context = field(default_factory=Context)
    keep_alive: int | None = None
    """Nanoseconds."""
    oom_retried: bool = False

    @property
    def key(self) -> str:
        return self.demand.model.key

    @property
    def who(self) -> str:
        return f"request {self.number} ({self.demand.model.name})"


@dataclass(slots=True, eq=False)
class Loaded:
    """One runner, as long as anybody has hold of it. `lock` guards the rest."""

    key: str
    demand: Demand | None
    """None once it is unloaded."""
    child: Child | None
    options: Options | None
    keep_alive: int
    gpus: tuple[str, ...]
    vram: int
    pid: int
    discrete: bool = True
    """Some GPU of it has memory of its own."""
    ctx_auto: bool = False
    batch_auto: bool = False
    loading: bool = True
    count: int = 0
    """Requests that use it; unsigned."""
    timer: Timer | None = None
    expires_at: float | None = None
    lock: Mutex = field(default_factory=Mutex)

    @property
    def who(self) -> str:
        return f"{self.key} (pid {self.pid})"

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.stop()
            self.timer = None
