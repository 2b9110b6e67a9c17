"""The values that scheduling decisions are made of: what is wanted, what is there, what is started.

All are frozen; sizes are bytes, durations and instants nanoseconds of the monotonic clock, contexts and batches
tokens - always ints (I08).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

__all__ = [
    "FOREVER",
    "MODELS",
    "RAM",
    "Demand",
    "DeviceFacts",
    "LaunchConfig",
    "LoadOptions",
    "ModelFacts",
    "Observation",
    "Placement",
    "Policy",
    "Shape",
]

FOREVER: Final = (1 << 63) - 1
"""A keep-alive that never ends, in nanoseconds: a value of its own, no timer is armed for it (R27)."""

RAM: Final = "cpu"
"""Resource id of system memory."""

MODELS: Final = "models"
"""Pseudo-resource: one unit for each loaded model, so that the model limit needs no code of its own (I14)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's need for memory follows from (`footprint`). Counts are elements of one token, sizes bytes."""

    weights: int
    """The whole file without its header."""
    embedding: int
    feed_forward: int
    """Width of the hidden layer; of all experts that one token uses."""
    heads: int
    queries: int
    """Of all heads of a layer."""
    keys: int
    """Of all key-value heads of a layer."""
    cached: int
    """Keys and values in all layers that see the whole context."""
    vocabulary: int
    """Entries."""
    merges: int = 0
    """Entries; a SentencePiece vocabulary has none."""
    window: int = 0
    """Tokens; 0 for none."""
    window_cached: int = 0
    """Keys and values in all layers that see this window only."""
    state: int = 0
    """Bytes of one sequence's state in all recurrent layers."""
    inner: int = 0
    """Width of a recurrent layer."""
    token_embeddings: int = 0
    """Bytes of the table that stays in RAM wherever the layers are."""
    tied: bool = False
    """The same table is the output matrix: on GPUs there is a copy."""
    head: bool = True
    """There are logits: not so for pure encoders."""
    attends: bool = True
    projector: int = 0
    """Bytes with its scratch memory."""
    adapters: int = 0
    draft: Shape | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A load of a model: what the footprint said it would take, and what it took. Without the prompt cache."""

    num_ctx: int
    parallel: int
    batch: int
    cache_type: str
    gpus: int
    """How many; 0: everything in RAM."""
    gpu_estimated: int
    gpu_measured: int
    ram_estimated: int
    ram_measured: int

    @property
    def launch(self) -> tuple[int, int, int, str, int]:
        """What another load must have in common with this one to take the same."""
        return (self.num_ctx, self.parallel, self.batch, self.cache_type, self.gpus)

    @property
    def on_gpus(self) -> Fraction | None:
        """Bytes measured for each one estimated; None where none was."""
        return Fraction(self.gpu_measured, self.gpu_estimated) if self.gpu_estimated else None

    @property
    def in_ram(self) -> Fraction | None:
        return Fraction(self.ram_measured, self.ram_estimated) if self.ram_estimated else None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the scheduler must know of a model; read from its files before planning, never during it (I17)."""

    key: str
    """Identity for sharing a runner: path of the weights, else `digest:...`, else `name:...` (R-entries' "key")."""
    name: str
    """As people know it; only for messages."""
    path: str
    file_size: int
    architecture: str = ""
    families: tuple[str, ...] = ()
    layers: int = 0
    """`<arch>.block_count`."""
    kv_heads: int = 1
    """The smallest `<arch>.attention.head_count_kv`; 0 counts as 1."""
    head_dim: int = 0
    """`embedding_length // max(head_count)`."""
    train_context: int = 0
    """`<arch>.context_length`; 0 when unknown."""
    completion: bool = True
    vision: bool = False
    pooled: bool = False
    """The file has a `pooling_type`: an embedding model."""
    projectors: tuple[str, ...] = ()
    projector_size: int = 0
    adapters: tuple[str, ...] = ()
    draft: str | None = None
    draft_kind: str = ""
    """As in `LaunchSpec`; without a `draft` of its own the model can draft for itself."""
    image_min_tokens: int = 0
    chat_template: str = ""
    """The runner's own template, by name, that makes its prompts; empty: that of the weights, or this server does."""
    shape: Shape | None = None
    """None: only upstream's formula can tell what it takes."""
    observed: tuple[Observation, ...] = ()
    """Earlier loads of it, the latest last."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The part of a request's options that decides how a runner is launched.

    An `*_auto` flag says that neither request nor model nor environment chose the value.
    """

    num_ctx: int = 4096
    num_ctx_auto: bool = True
    num_batch: int = 512
    num_batch_auto: bool = True
    num_gpu: int = -1
    main_gpu: int | None = None
    use_mmap: bool | None = None
    num_thread: int = 0
    draft_num_predict: int = 0
    shift: bool | None = None
    """The request's `shift`; None for the model's default (R58)."""
    embeddings: bool = False
    """The request wants embeddings; a completion request is satisfied by either kind of launch."""


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The effective configuration a runner generation is launched with, and compared by (R58)."""

    num_ctx: int
    """Per slot, clamped to the training context."""
    num_ctx_auto: bool
    num_batch: int
    num_batch_auto: bool
    num_gpu: int
    main_gpu: int | None
    use_mmap: bool | None
    use_mmap_auto: bool
    num_thread: int
    draft_num_predict: int
    context_shift: bool
    embeddings: bool
    parallel: int
    train_context: int
    projectors: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    draft: str | None = None
    chat_template: str = ""
    projector_on_cpu: bool = False
    """An earlier load ran out of memory with it on a GPU."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One request's wish to use a model."""

    model: ModelFacts
    options: LoadOptions = LoadOptions()
    keep_alive: int | None = None
    """Nanoseconds; `FOREVER`; None leaves a loaded runner's value and takes the default for a new one (R24)."""
    slot: bool = True
    """False for a request that only loads."""
    finish_load: bool | None = None
    """Whether a load that this request is the last to leave goes on to its end; None for the policy's choice."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device as last reported (the last good values, I19). `reported_free` includes other programs' usage."""

    id: str
    total: int
    reported_free: int
    overhead: int = 0
    library: str = "cuda"
    integrated: bool = False
    compute: tuple[int, int] = (0, 0)
    driver: tuple[int, int] = (0, 0)
    alone: bool = False
    """No process can use it together with another one (a part of a GPU)."""

    @property
    def gpu(self) -> bool:
        return self.id != RAM

    @property
    def fit_percent(self) -> int:
        """Part of the free bytes that a prediction may fill: 80 % on GPUs (upstream's rule), all of RAM."""
        return 80 if self.gpu else 100


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a load would go, and what it takes."""

    kind: str
    """`single`, `group`, `partial`, `explicit_partial` or `cpu`."""
    gpus: tuple[str, ...]
    need: Mapping[str, int]
    """Free bytes each resource must have before the load starts (with the fit headroom)."""
    reservation: Mapping[str, int]
    """Bytes the runner holds on each resource until it is gone."""
    load_lock: frozenset[str]
    """Devices on which no other load may run meanwhile (I06)."""
    layers: int | None = None
    """Layers to offload; None for automatic."""
    main_gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user may choose, fixed for the life of the daemon. Durations in nanoseconds."""

    overtakes: int = 4
    """N: later requests that may still join a runner that an earlier waiter wants gone (I23)."""
    queue_bound: int = 512
    max_models: int = 0
    """0: three for each GPU, at least three (R47)."""
    keep_alive: int = 300 * 10**9
    num_parallel: int = 1
    finish_abandoned_load: bool = False
    spread: bool = False
    flash_attention: str = ""
    """`on`, `off`, or empty for automatic."""
    prompt_cache: int = 0
    """Bytes per runner, reserved in RAM."""
    cache_type: str = ""
    """Element type of the KV cache; empty for f16."""
    platform: str = "linux"
    threads: int = 0
    """That compute on the CPU, where no request says otherwise; 0: unknown."""
    crash_limit: int = 3
    crash_backoff: int = 30 * 10**9
