"""Models of any shape for tests of memory: a true header, and weights that are a hole in the file.

A hole reads as zeros, costs no disk and no time, and once loaded it is as resident as any weights. The engine takes
such a model and answers (nonsense): only the sizes matter here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import gguf
import numpy as np

__all__ = ["write_shape"]

_BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
_SPECIAL: Final = ("<unk>", "<s>", "</s>")


def write_shape(
    path: Path | str,
    *,
    architecture: str = "llama",
    layers: int = 4,
    embedding: int = 512,
    heads: int = 8,
    kv_heads: int | Sequence[int] = 8,
    feed_forward: int = 1024,
    vocabulary: int = 32000,
    context: int = 8192,
    key_length: int = 0,
    window: int = 0,
    tied: bool = False,
    merges: bool = False,
    weights: str = "F16",
    state: int = 0,
    experts: int = 0,
    values: Mapping[str, int | float | Sequence[int]] | None = None,
) -> Path:
    """Write the model to `path` and return it.

    `key_length`: elements of a key and of a value of one head; 0 leaves it to embedding over heads. `window`: tokens of
    the sliding window; `tied`: no output matrix of its own; `merges`: a BPE vocabulary instead of SentencePiece;
    `state`: elements of a recurrent state (architecture `mamba`, without attention). `experts`: feed-forward parts of
    each layer, two of which a token uses. `values`: more keys of the architecture, written as they are.
    """
    path = Path(path)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(path.stem)
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16))
    writer.add_context_length(context)
    writer.add_embedding_length(embedding)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    if state:
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * embedding)
        writer.add_ssm_state_size(state)
        writer.add_ssm_time_step_rank(embedding // 16)
    else:
        writer.add_head_count_kv(kv_heads if isinstance(kv_heads, int) else list(kv_heads))
        writer.add_rope_dimension_count(key_length or embedding // heads)
    if key_length:
        writer.add_key_length(key_length)
        writer.add_value_length(key_length)
    if window:
        writer.add_sliding_window(window)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(2)
    for key, value in (values or {}).items():
        _add(writer, f"{architecture}.{key}", value)
    _add_tokenizer(writer, vocabulary, merges)
    kinds = {"weights": gguf.GGMLQuantizationType[weights], "f32": gguf.GGMLQuantizationType.F32}
    if state:
        shapes = _recurrent(layers, embedding, vocabulary, state)
    else:
        shapes = _attention(layers, embedding, heads, kv_heads, vocabulary, key_length, architecture)
        for layer in range(layers):
            parts = _feed_forward(embedding, feed_forward, experts)
            shapes |= {f"blk.{layer}.{part}": shape for part, shape in parts.items()}
    if tied:
        del shapes["output"]
    end = 0
    for name, shape in shapes.items():
        kind = kinds["f32" if len(shape) == 1 or "ssm_conv1d" in name or "ssm_a" in name else "weights"]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        bytes_ = math.prod(shape) // block * size
        suffix = "" if name.endswith(("ssm_a", "ssm_d", ".bias")) else ".weight"
        writer.add_tensor_info(name + suffix, shape, np.dtype(np.float32), bytes_, kind)
        end += -(-bytes_ // gguf.GGUF_DEFAULT_ALIGNMENT) * gguf.GGUF_DEFAULT_ALIGNMENT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    alignment = gguf.GGUF_DEFAULT_ALIGNMENT
    os.truncate(path, -(-path.stat().st_size // alignment) * alignment + end)
    return path


def _attention(
    layers: int,
    embedding: int,
    heads: int,
    kv_heads: int | Sequence[int],
    vocabulary: int,
    key_length: int,
    architecture: str,
) -> dict[str, tuple[int, ...]]:
    """Tensor name to shape (outputs, inputs)."""
    length = key_length or embedding // heads
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (vocabulary, embedding),
        "output_norm": (embedding,),
        "output": (vocabulary, embedding),
    }
    for layer in range(layers):
        keys = length * (kv_heads if isinstance(kv_heads, int) else kv_heads[layer])
        block: dict[str, tuple[int, ...]] = {
            "attn_norm": (embedding,),
            "attn_q": (length * heads, embedding),
            "attn_k": (keys, embedding),
            "attn_v": (keys, embedding),
            "attn_output": (embedding, length * heads),
        }
        if architecture == "gemma3":
            block |= {
                "attn_q_norm": (length,),
                "attn_k_norm": (length,),
                "post_attention_norm": (embedding,),
                "post_ffw_norm": (embedding,),
            }
        shapes |= {f"blk.{layer}.{part}": shape for part, shape in block.items()}
    return shapes


def _feed_forward(embedding: int, width: int, experts: int) -> dict[str, tuple[int, ...]]:
    many: tuple[int, ...] = (experts,) if experts else ()
    suffix = "_exps" if experts else ""
    router: dict[str, tuple[int, ...]] = {"ffn_gate_inp": (experts, embedding)} if experts else {}
    return {
        "ffn_norm": (embedding,),
        **router,
        f"ffn_gate{suffix}": (*many, width, embedding),
        f"ffn_up{suffix}": (*many, width, embedding),
        f"ffn_down{suffix}": (*many, embedding, width),
    }


def _recurrent(layers: int, embedding: int, vocabulary: int, state: int) -> dict[str, tuple[int, ...]]:
    """Mamba's tensors: no keys and values, a state of fixed size."""
    inner, rank = 2 * embedding, embedding // 16
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (vocabulary, embedding),
        "output_norm": (embedding,),
        "output": (vocabulary, embedding),
    }
    for layer in range(layers):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm": (embedding,),
            "ssm_in": (2 * inner, embedding),
            "ssm_conv1d": (inner, 4),
            "ssm_conv1d.bias": (inner,),
            "ssm_x": (rank + 2 * state, inner),
            "ssm_dt": (inner, rank),
            "ssm_dt.bias": (inner,),
            "ssm_a": (inner, state),
            "ssm_d": (inner,),
            "ssm_out": (embedding, inner),
        }
        shapes |= {f"blk.{layer}.{part}": shape for part, shape in block.items()}
    return shapes


def _add(writer: gguf.GGUFWriter, key: str, value: int | float | Sequence[int]) -> None:
    if isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_array(key, list(value))


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: int, merges: bool) -> None:
    plain = vocabulary - len(_SPECIAL) - len(_BYTES)
    words = [f"w{number:x}" for number in range(plain)]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * len(_BYTES) + [gguf.TokenType.NORMAL] * plain
    writer.add_tokenizer_model("gpt2" if merges else "llama")
    writer.add_token_list([*_SPECIAL, *_BYTES, *words])
    writer.add_token_types(kinds)
    if merges:
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_merges([f"{word[:-1]} {word[-1]}" for word in words])
    else:
        writer.add_token_scores([float(-number) for number in range(vocabulary)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
