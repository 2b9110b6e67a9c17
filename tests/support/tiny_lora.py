"""A real adapter for the model of `tiny_gguf`: random, and strong enough to change what it says."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

__all__ = ["write_tiny_lora"]

_WIDTH, _RANK, _LAYERS = 64, 4, 2


def write_tiny_lora(path: Path | str, *, seed: int = 0) -> Path:
    """Write the adapter to `path` and return it."""
    path = Path(path)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_name("tiny adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0 * _RANK)
    generator = np.random.default_rng(seed)
    for layer in range(_LAYERS):
        # Of the queries only: they move what is attended to, and write to nothing that has to stay as it is.
        at = f"blk.{layer}.attn_q.weight"
        writer.add_tensor(f"{at}.lora_a", generator.standard_normal((_RANK, _WIDTH), dtype=np.float32))
        writer.add_tensor(f"{at}.lora_b", generator.standard_normal((_WIDTH, _RANK), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
