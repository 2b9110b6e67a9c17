"""What a runner will really take, part by part: the estimate that reservations are made of.

Upstream's formula (`memory.predict_vram`) decides what fits and who is evicted, as clients expect; it knows neither
quantized caches nor sliding windows, compute buffers or the process itself. This one does. Sizes are bytes and ints;
a model without a `Shape` gets the formula's number.

Where constants come from: *llama.cpp* means its source; *measured* means the embedded runner (llama.cpp b11549) on
x86-64 Linux, by its own buffer lines and its resident memory (`python -m tests.benchmarks.memory_estimate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from .batch import batch_for
from .flash_attention import flash_attention
from .memory import batch_surcharge, predict_vram, saturating_sub
from .values import DeviceFacts, LaunchConfig, ModelFacts, Policy, Shape

__all__ = ["BLOCKS", "IDLE_PROCESS", "Footprint", "footprint"]

_MIB: Final = 1 << 20

BLOCKS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "f32": (1, 4),
        "f16": (1, 2),
        "bf16": (1, 2),
        "q8_0": (32, 34),
        "q5_1": (32, 24),
        "q5_0": (32, 22),
        "q4_1": (32, 20),
        "q4_0": (32, 18),
        "iq4_nl": (32, 18),
    }
)
"""Elements and bytes of one block of each cache type (llama.cpp)."""

_CELLS: Final = 256
"""Contexts, and windows with a batch, are rounded up to multiples of this (llama.cpp)."""

IDLE_PROCESS: Final = 23 * _MIB
"""Resident memory of an embedded child that has loaded nothing (measured; 15 of it are shared libraries)."""

_SERVER: Final = 6 * _MIB
"""Threads, slots and buffers of a server at work (measured: 5 to 7)."""

_LAYER: Final = 128 << 10
"""Descriptions of tensors and steps (measured: 100 to 250 KiB)."""

_WORD: Final = 210
"""Of one entry of the vocabulary, or of one merge (measured: 195 to 215)."""

_DEVICE: Final = 457 * _MIB
"""What a GPU's driver holds for one process: upstream's own minimum for all GPUs but Metal's."""

_INPUTS: Final = 10
"""Words of 4 bytes for each token's id, position and place in the cache (measured)."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes, by what they are for. The first group goes where the layers go, the second stays in RAM."""

    weights: int
    """All matrices but the token embeddings; on GPUs with the copy of those that is the output matrix."""
    cache: int
    """Keys and values."""
    state: int = 0
    """Of recurrent layers."""
    compute: int = 0
    projector: int = 0
    adapters: int = 0
    draft: int = 0
    """The draft model with all that belongs to it."""
    driver: int = 0
    """The driver's own, on every GPU."""

    token_embeddings: int = 0
    inputs: int = 0
    """Of a batch, on their way to a GPU."""
    outputs: int = 0
    vocabulary: int = 0
    process: int = 0
    prompt_cache: int = 0

    @property
    def movable(self) -> int:
        """Goes where the layers go."""
        return (
            self.weights
            + self.cache
            + self.state
            + self.compute
            + self.projector
            + self.adapters
            + self.draft
            + self.driver
        )

    @property
    def host(self) -> int:
        """Stays in RAM, wherever the layers are."""
        return self.token_embeddings + self.inputs + self.outputs + self.vocabulary + self.process + self.prompt_cache

    @property
    def total(self) -> int:
        return self.movable + self.host


def footprint(
    model: ModelFacts,
    config: LaunchConfig,
    policy: Policy,
    gpus: Sequence[DeviceFacts] = (),
    *,
    batch: int | None = None,
) -> Footprint:
    """What a runner of this configuration takes with its layers on `gpus`, or all in RAM if there are none.

    `batch`: tokens of one batch, where the configuration leaves it open; None for what a placement on the CPU gets.
    A full context and a full batch are counted, so it is what the runner grows to, not what it has after its load.
    """
    if batch is None:
        batch = batch_for(model, config, policy, gpus, predicted=0, available=0, layers_on_cpu=True)
    shape = model.shape
    if shape is None:
        return Footprint(
            weights=model.file_size,
            cache=saturating_sub(predict_vram(model, config.num_ctx, config.parallel), model.file_size),
            compute=batch_surcharge(batch, model.completion and not model.pooled) if gpus else 0,
            prompt_cache=policy.prompt_cache,
        )
    drafting = config.draft is not None and config.draft_num_predict > 0
    return _of_shape(
        shape,
        _Context(
            max(0, config.num_ctx),
            max(1, config.parallel),
            batch,
            flash_attention(policy.flash_attention, gpus) != "off",
        ),
        model.layers,
        len(gpus),
        policy.cache_type,
        policy.prompt_cache,
        embeddings=config.embeddings,
        drafting=drafting,
    )


@lru_cache(maxsize=1024)
def _of_shape(
    shape: Shape,
    wide: _Context,
    layers: int,
    gpus: int,
    cache_type: str,
    prompt_cache: int,
    *,
    embeddings: bool,
    drafting: bool,
) -> Footprint:
    """Remembered: the planner asks again for each GPU, whenever there are new figures of free memory."""
    outputs = wide.batch if embeddings else wide.slots
    return Footprint(
        weights=shape.weights if shape.tied or not gpus else saturating_sub(shape.weights, shape.token_embeddings),
        cache=wide.cache(shape, cache_type),
        state=shape.state * wide.slots,
        compute=wide.compute(shape, outputs),
        projector=shape.projector,
        adapters=shape.adapters,
        draft=_draft(shape.draft, wide) if drafting and shape.draft is not None else 0,
        driver=_DEVICE * gpus,
        token_embeddings=shape.token_embeddings if gpus else 0,
        inputs=wide.inputs(shape) if gpus else 0,
        outputs=wide.outputs(shape, outputs),
        vocabulary=_vocabulary(shape),
        process=IDLE_PROCESS + _SERVER + _LAYER * layers,
        prompt_cache=prompt_cache,
    )


def _vocabulary(shape: Shape) -> int:
    return _WORD * (shape.vocabulary + shape.merges)


def _draft(shape: Shape, wide: _Context) -> int:
    """A draft model has the main one's contexts and batch, and always an f16 cache (measured)."""
    return (
        shape.weights
        + wide.cache(shape, "")
        + shape.state * wide.slots
        + wide.compute(shape, wide.slots)
        + wide.outputs(shape, wide.slots)
        + _vocabulary(shape)
    )


class _Context(NamedTuple):
    """The tokens a runner is made for: `num_ctx` for each of `slots`, `batch` of them at once."""

    num_ctx: int
    slots: int
    batch: int
    flash: bool

    @property
    def cells(self) -> int:
        """Of the cache, for each slot."""
        return _rounded(self.num_ctx)

    def window_cells(self, shape: Shape) -> int:
        """The same in layers that look back no further than a window: it and one batch (llama.cpp)."""
        return min(self.cells, _rounded(min(self.num_ctx, shape.window + self.tokens))) if shape.window_cached else 0

    @property
    def tokens(self) -> int:
        """Of one batch."""
        return max(1, min(self.batch, self.cells * self.slots))

    def cache(self, shape: Shape, cache_type: str) -> int:
        elements = shape.cached * self.cells + shape.window_cached * self.window_cells(shape)
        block, size = BLOCKS.get(cache_type.lower(), BLOCKS["f16"])
        return -(-elements * self.slots // block) * size

    def inputs(self, shape: Shape) -> int:
        return self.tokens * (4 * (shape.embedding + _INPUTS) + self._mask(shape))

    def outputs(self, shape: Shape, count: int) -> int:
        """Logits that are handed out; embeddings have those of a whole batch (measured)."""
        return 4 * min(count, self.tokens) * shape.vocabulary if shape.head else 0

    def compute(self, shape: Shape, outputs: int) -> int:
        """The scratch memory of the largest step of one batch.

        Measured on models of 20 shapes and exact for usual ones: in words for each token, 5 embeddings and 3 hidden
        layers in the feed-forward part, or 3 embeddings, 2 queries and 3 keys in the attention part, which without
        flash attention holds the scores of all heads for the whole context as well; 5 of each in a recurrent part.
        The logits of all `outputs` come after all these, in the same memory.
        """
        attention = 3 * shape.embedding + 2 * shape.queries + 3 * shape.keys
        if not self.flash:
            attention += shape.heads * max(self.cells, self.window_cells(shape)) if shape.cached else 0
        words = max(
            5 * shape.embedding + 3 * shape.feed_forward,
            attention,
            5 * (shape.embedding + shape.inner) if shape.inner else 0,
        )
        graph = self.tokens * (4 * (words + _INPUTS) + self._mask(shape))
        logits = 4 * min(outputs, self.tokens) * (shape.vocabulary + 7 * shape.embedding) if shape.head else 0
        return max(graph, logits)

    def _mask(self, shape: Shape) -> int:
        """Bytes for each token: which cells it may look at, f16 for flash attention, else f32 (llama.cpp)."""
        if not shape.attends:
            return 0
        cells = (self.cells if shape.cached else 0) + self.window_cells(shape)
        return (cells or self.tokens) * (2 if self.flash else 4)


def _rounded(tokens: int) -> int:
    return max(1, -(-tokens // _CELLS)) * _CELLS
