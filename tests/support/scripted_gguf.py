"""A real model that always says the same: its weights lead from each piece of the answer to the next, and to the end.

So a real runner can be made to think aloud, or to call a tool, without weights that have learned it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import gguf
import numpy as np

__all__ = ["TEMPLATE", "tool_call", "write_scripted_gguf"]

TEMPLATE: Final = """\
{%- if tools %}<|im_start|>system
Functions that may be called:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
A call looks so:
<tool_call>
{"name": <name>, "arguments": <arguments as JSON>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}\
"""
"""A chat template of the widespread kind: thoughts between tags, and calls as JSON between others."""

_EMBEDDING, _HEADS, _FEED_FORWARD = 64, 2, 64
_FIRST_BYTE: Final = 3
_SPACE: Final = "\u2581"
_CERTAIN: Final = 10.0


def tool_call(name: str, arguments: str) -> str:
    """How the model calls a tool; `arguments` is JSON."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def write_scripted_gguf(
    path: Path | str,
    pieces: Sequence[str | bytes],
    *,
    name: str = "scripted",
    chat_template: str = TEMPLATE,
    endless: bool = False,
) -> Path:
    """Write the model to `path` and return it.

    `pieces`: what it says after any prompt, each a token of its own: at most 60, all different. A piece of `bytes` is
    one byte, which may be a part of a character; none of these may be the last byte of a prompt. An empty
    `chat_template` is none. `endless`: it says the last piece again and again.
    """
    path, count = Path(path), len(pieces)
    assert count == len(set(pieces)) < _EMBEDDING - 3
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), _SPACE]
    first = len(tokens)
    said: list[int] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            (byte,) = piece
            said.append(_FIRST_BYTE + byte)
        else:
            said.append(len(tokens))
            tokens.append(piece.replace(" ", _SPACE))
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (1 + len(tokens) - first)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_file_type(int(gguf.LlamaFileType.ALL_F32))
    writer.add_context_length(4096)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_EMBEDDING // _HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * (first - 1) + [-1.0 - index for index in range(1 + len(tokens) - first)])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    if chat_template:
        writer.add_chat_template(chat_template)

    # Dimension 0 says "no piece yet", dimension i + 1 "piece i was last"; no layer adds anything to that.
    embeddings = np.zeros((len(tokens), _EMBEDDING), np.float32)
    output = np.zeros_like(embeddings)
    embeddings[:first, 0] = 1
    for index, following in enumerate([*said, said[-1] if endless else 2]):
        output[following, index] = _CERTAIN
        if index < count:
            embeddings[following] = 0
            embeddings[following, index + 1] = 1
    writer.add_tensor("token_embd.weight", embeddings)
    writer.add_tensor("output.weight", output)
    ones, square = np.ones(_EMBEDDING, np.float32), np.zeros((_EMBEDDING, _EMBEDDING), np.float32)
    for part in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{part}.weight", ones)
    for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{part}.weight", square)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
