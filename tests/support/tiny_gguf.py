"""A real model that loads in milliseconds: a llama of half a megabyte with random weights.

The weights are a function of `seed` alone, so two files with the same arguments are equal byte for byte. Some rows and
columns are muted: dimension 0 of the residual stream is a constant, nothing writes to it, and tokens that must never
be sampled (unknown, begin, end, unprintable bytes) read only that dimension, with a large negative weight. So every
answer reaches its token limit and is printable ASCII.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import numpy.typing as npt

__all__ = ["CHAT_TEMPLATE", "VOCABULARY", "words", "write_tiny_gguf"]

CHAT_TEMPLATE: Final = """\
{% for message in messages %}[{{ message.role }}] {{ message.content }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}\
"""

SPACE: Final = "\u2581"
"""How a SentencePiece vocabulary spells a space."""

SPECIAL: Final = ("<unk>", "<s>", "</s>")
BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))
WORDS: Final = (
    SPACE,
    SPACE + "w",
    *(f"{SPACE}w{digit}" for digit in range(10)),
    *(f"{SPACE}{first}{second}" for first in "bdfgklm" for second in "aeiouyr"),
)
VOCABULARY: Final = SPECIAL + BYTES + WORDS
"""320 entries; `" w0"` to `" w9"` are one token each."""

_EMBEDDING, _HEADS, _KV_HEADS, _FEED_FORWARD = 64, 4, 2, 128
_Floats = npt.NDArray[np.float32]


def words(count: int) -> str:
    """A prompt of exactly `count` tokens, after the begin token that the server adds."""
    return " ".join(f"w{index * 7 % 10}" for index in range(count))


def write_tiny_gguf(
    path: Path | str,
    *,
    name: str = "tiny",
    seed: int = 0,
    context: int = 2048,
    layers: int = 2,
    chat_template: bool | str = True,
    pooling: str | None = None,
    tail: int = 0,
    split: int = 0,
    metadata: Mapping[str, str | int | float | bool] | None = None,
) -> Path:
    """Write the model to `path` and return it.

    `chat_template`: True for `CHAT_TEMPLATE`, False for none, or the template's text. `pooling` (`mean`, `cls`,
    `last`, `rank`) makes it an embedding model. `tail` adds that many bytes of sparse file, which make the model look
    large and occupy no disk. `metadata` adds keys. `split` is the most tensors that one file may have: the model is
    then in files beside `path`, named as llama.cpp wants them, and there is none at `path` itself.
    """
    path = Path(path)
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=split)
    writer.add_name(name)
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    writer.add_context_length(context)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_EMBEDDING // _HEADS)
    writer.add_vocab_size(len(VOCABULARY))
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType[pooling.upper()])
    _add_tokenizer(writer, chat_template)
    for key, value in (metadata or {}).items():
        _add_value(writer, key, value)
    for tensor, data in _weights(seed, layers).items():
        writer.add_tensor(tensor, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if tail:
        os.truncate(path, path.stat().st_size + tail)
    return path


def _add_tokenizer(writer: gguf.GGUFWriter, chat_template: bool | str) -> None:
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * len(BYTES) + [gguf.TokenType.NORMAL] * len(WORDS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(VOCABULARY))
    writer.add_token_scores([0.0] * (len(SPECIAL) + len(BYTES)) + [float(-rank) for rank in range(len(WORDS))])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    if chat_template:
        writer.add_chat_template(CHAT_TEMPLATE if chat_template is True else chat_template)


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case _:
            writer.add_string(key, value)


def _weights(seed: int, layers: int) -> dict[str, _Floats]:
    """Tensor name to values, shaped (outputs, inputs)."""
    generator = np.random.default_rng(seed)

    def noise(*shape: int) -> _Floats:
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(0.3)

    keys = _EMBEDDING // _HEADS * _KV_HEADS
    embeddings, output = noise(len(VOCABULARY), _EMBEDDING), noise(len(VOCABULARY), _EMBEDDING)
    embeddings[:, 0] = 3  # the constant dimension
    output[:, 0] = 0
    for token in range(len(SPECIAL) + len(BYTES)):
        if not 0x20 <= token - len(SPECIAL) <= 0x7E:
            output[token] = 0
            output[token, 0] = -4
    tensors = {
        "token_embd.weight": embeddings,
        "output.weight": output,
        "output_norm.weight": np.ones(_EMBEDDING, np.float32),
    }
    for layer in range(layers):
        block = {
            "attn_norm": np.ones(_EMBEDDING, np.float32),
            "attn_q": noise(_EMBEDDING, _EMBEDDING),
            "attn_k": noise(keys, _EMBEDDING),
            "attn_v": noise(keys, _EMBEDDING),
            "attn_output": noise(_EMBEDDING, _EMBEDDING),
            "ffn_norm": np.ones(_EMBEDDING, np.float32),
            "ffn_gate": noise(_FEED_FORWARD, _EMBEDDING),
            "ffn_up": noise(_FEED_FORWARD, _EMBEDDING),
            "ffn_down": noise(_EMBEDDING, _FEED_FORWARD),
        }
        block["attn_output"][0] = block["ffn_down"][0] = 0  # nothing writes to the constant dimension
        tensors |= {f"blk.{layer}.{part}.weight": data for part, data in block.items()}
    return tensors
