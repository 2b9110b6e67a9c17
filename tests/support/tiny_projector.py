"""A real image encoder that loads in milliseconds: two layers with random weights, for the model of `tiny_gguf`.

It makes four tokens of every picture, and other ones of other pictures: what the model says then depends on what it
was shown, though nobody would call it sight.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt

__all__ = ["TOKENS", "write_tiny_projector"]

IMAGE, PATCH = 28, 14
"""Pixels of a side."""
TOKENS: Final = (IMAGE // PATCH) ** 2
"""Of one picture."""

_WIDTH, _HEADS, _FEED_FORWARD, _LAYERS = 32, 2, 64, 2


def write_tiny_projector(path: Path | str, *, seed: int = 0, model_width: int = 64) -> Path:
    """Write the encoder to `path` and return it; `model_width` is the embedding length of the model it is for."""
    path = Path(path)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name("tiny projector")
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("mlp")
    writer.add_vision_image_size(IMAGE)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(_WIDTH)
    writer.add_vision_feed_forward_length(_FEED_FORWARD)
    writer.add_vision_block_count(_LAYERS)
    writer.add_vision_head_count(_HEADS)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_projection_dim(model_width)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_use_gelu(True)
    for tensor, data in _weights(seed, model_width).items():
        writer.add_tensor(tensor, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(seed: int, model_width: int) -> dict[str, npt.NDArray[np.float32]]:
    """Tensor name to values, shaped (outputs, inputs)."""
    generator = np.random.default_rng(seed)
    tensors: dict[str, npt.NDArray[np.float32]] = {}

    def linear(name: str, outputs: int, inputs: int) -> None:
        tensors[f"{name}.weight"] = generator.standard_normal((outputs, inputs), dtype=np.float32) * np.float32(0.3)
        tensors[f"{name}.bias"] = np.zeros(outputs, np.float32)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(_WIDTH, np.float32), np.zeros(_WIDTH, np.float32)

    tensors["v.class_embd"] = generator.standard_normal(_WIDTH, dtype=np.float32)
    tensors["v.patch_embd.weight"] = generator.standard_normal((_WIDTH, 3, PATCH, PATCH), dtype=np.float32)
    tensors["v.position_embd.weight"] = generator.standard_normal((TOKENS + 1, _WIDTH), dtype=np.float32)
    norm("v.pre_ln")
    for layer in range(_LAYERS):
        at = f"v.blk.{layer}"
        norm(f"{at}.ln1")
        norm(f"{at}.ln2")
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            linear(f"{at}.{part}", _WIDTH, _WIDTH)
        linear(f"{at}.ffn_up", _FEED_FORWARD, _WIDTH)
        linear(f"{at}.ffn_down", _WIDTH, _FEED_FORWARD)
    linear("mm.0", model_width, _WIDTH)
    linear("mm.2", model_width, model_width)
    return tensors
