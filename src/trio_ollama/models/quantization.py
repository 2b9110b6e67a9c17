"""Which type each tensor gets when a model is quantized: llama.cpp's own mixtures, the ones that people ask for.

A mixture has a type for most tensors and one with more bits for those that matter most: the output, and in the K ones
the values of the attention and the second half of the feed-forward in some of the layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .errors import CreateError
from .gguf import Layout, StoredTensor
from .gguf_constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType

__all__ = ["MIXTURES", "Mixture", "mixture", "source_type", "types_of"]

_Kind = GGMLQuantizationType
_FLOATS: Final = {_Kind.F32: "F32", _Kind.F16: "F16", _Kind.BF16: "BF16"}
_FALLBACKS: Final = {_Kind.Q4_K: _Kind.Q5_0, _Kind.Q5_K: _Kind.Q5_1, _Kind.Q6_K: _Kind.Q8_0}
"""For rows that the blocks of 256 do not divide; where 32 does not either, it is F16."""
_LAYER: Final = re.compile(r"blk\.(\d+)\.")
_KEPT: Final = re.compile(
    r"_norm\.weight|ffn_gate_inp\.weight|position_embd|token_types|ssm_conv1d|shortconv|time_mix_|attn_rel_b"
    r"|altup|laurel|per_layer_model_proj|^(v|mm|a|mtp)\."
)
"""Small, or so sensitive that nobody quantizes them; and encoders of pictures and sounds."""


def _some(layer: int, layers: int) -> bool:
    """The first and the last eighth, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2


@dataclass(frozen=True, slots=True)
class Mixture:
    """What a quantization's name stands for."""

    file_type: LlamaFileType
    most: GGMLQuantizationType
    better: GGMLQuantizationType | None = None
    """For values and the second half of the feed-forward of the layers that `where` chooses."""
    where: Callable[[int, int], bool] = _some
    fused: GGMLQuantizationType | None = None
    """For a matrix that holds queries, keys and values."""

    @property
    def name(self) -> str:
        """As configs have it."""
        return self.file_type.name.removeprefix("MOSTLY_")

    def choose(self, name: str, layers: int, tied: bool) -> GGMLQuantizationType:
        """The type for a tensor of this name; `tied`: the embeddings are the output, too."""
        if name == "output.weight" or (tied and name == "token_embd.weight"):
            return self.most if self.most is _Kind.Q8_0 else _Kind.Q6_K
        if "attn_qkv.weight" in name and self.fused is not None:
            return self.fused
        found = _LAYER.match(name)
        if self.better is not None and found is not None and ("attn_v.weight" in name or "ffn_down" in name):
            return self.better if self.where(int(found[1]), layers) else self.most
        return self.most


def _first_eighth(layer: int, layers: int) -> bool:
    return layer < max(layers // 8, 1)


MIXTURES: Final = {
    each.name: each
    for each in (
        Mixture(LlamaFileType.MOSTLY_Q4_0, _Kind.Q4_0),
        Mixture(LlamaFileType.MOSTLY_Q4_K_S, _Kind.Q4_K, _Kind.Q5_K, _first_eighth),
        Mixture(LlamaFileType.MOSTLY_Q4_K_M, _Kind.Q4_K, _Kind.Q6_K, fused=_Kind.Q5_K),
        Mixture(LlamaFileType.MOSTLY_Q5_K_S, _Kind.Q5_K),
        Mixture(LlamaFileType.MOSTLY_Q5_K_M, _Kind.Q5_K, _Kind.Q6_K, fused=_Kind.Q6_K),
        Mixture(LlamaFileType.MOSTLY_Q6_K, _Kind.Q6_K),
        Mixture(LlamaFileType.MOSTLY_Q8_0, _Kind.Q8_0),
    )
}
"""By name, from small to large."""


def mixture(name: str) -> Mixture:
    """The mixture of this name, in any case. Raises CreateError."""
    found = MIXTURES.get(name.upper())
    if found is None:
        raise CreateError(f'unsupported quantization type "{name}": use one of {", ".join(MIXTURES)}')
    return found


def source_type(types: Sequence[str], file_type: str) -> str:
    """F16, BF16 or F32: what a model is to be quantized from, by its tensors' types. Raises CreateError."""
    floats = [name for name in _FLOATS.values() if name in types]
    if not floats or set(types) - set(floats):
        raise CreateError("quantization is only supported for F16, BF16 and F32 models")
    return file_type if file_type in floats else floats[-1]


def types_of(layout: Layout, wanted: Mixture) -> list[GGMLQuantizationType]:
    """What becomes of each tensor: its own type for those that are left alone."""
    names = {tensor.name for tensor in layout.tensors}
    layers = 1 + max((int(found[1]) for name in names if (found := _LAYER.match(name))), default=0)
    tied = "output.weight" not in names
    return [
        _fitting(wanted.choose(tensor.name, layers, tied), tensor.shape[0]) if _large(tensor) else _Kind(tensor.kind)
        for tensor in layout.tensors
    ]


def _large(tensor: StoredTensor) -> bool:
    return len(tensor.shape) > 1 and tensor.name.endswith("weight") and not _KEPT.search(tensor.name)


def _fitting(kind: GGMLQuantizationType, row: int) -> GGMLQuantizationType:
    if row % GGML_QUANT_SIZES[kind][0]:
        kind = _FALLBACKS.get(kind, kind)
    return _Kind.F16 if row % GGML_QUANT_SIZES[kind][0] else kind
