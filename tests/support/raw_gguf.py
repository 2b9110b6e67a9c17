"""GGUF headers byte by byte, right ones and wrong ones; for what the package's writer would not write."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["RawTensor", "array", "raw_gguf", "string"]

RawTensor = tuple[str, tuple[int, ...], int, int]
"""Name, shape, type number, offset."""


def string(text: str | bytes) -> bytes:
    """A string with its length before it."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def array(values: Sequence[str] | Sequence[int]) -> bytes:
    """An array value of strings or of 32-bit signed integers, with its types."""
    if values and isinstance(values[0], int):
        return struct.pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values)
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(string(str(value)) for value in values)


def _value(value: Any) -> bytes:
    match value:
        case bytes():
            return value  # with its type, ready made
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + string(value)
        case _:
            return array(value)


def raw_gguf(
    values: Mapping[str, Any] | None = None,
    tensors: Sequence[RawTensor] = (),
    *,
    version: int = 3,
    data: int = 0,
) -> bytes:
    """A GGUF with these values (integers as uint32, sequences as arrays) and `data` bytes of weights."""
    values = {"general.architecture": "llama"} | dict(values or {})
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    header += b"".join(string(key) + _value(value) for key, value in values.items())
    for name, shape, kind, offset in tensors:
        header += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    return header + bytes(-len(header) % 32 + data)
