"""What a GGUF file says about itself: keys with values, and its tensors' descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from .gguf_constants import LlamaFileType

__all__ = ["Metadata", "Scalar", "SkippedArray", "Tensor", "Value"]


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """Stands for an array that was too long to keep."""

    length: int


class Tensor(NamedTuple):
    """A tensor's description; `shape` in elements, fastest dimension first, as in the file."""

    name: str
    type: str
    """The type's name in ggml, like `Q4_K`; `unknown` for one newer than this program."""
    shape: tuple[int, ...]


Scalar: TypeAlias = int | float | bool | str
Value: TypeAlias = Scalar | tuple[Scalar, ...] | SkippedArray


@dataclass(frozen=True, slots=True)
class Metadata:
    """A GGUF header."""

    values: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    tensor_count: int
    parameter_count: int
    file_size: int
    header_size: int = 0
    """Bytes before the weights."""
    inline_vision: bool = False
    """There are `v.*` tensors: the image encoder is inside this file."""
    inline_draft: bool = False
    """There are `mtp.*` tensors: heads inside this file that draft for it."""
    token_embeddings: int = 0
    """Bytes of `token_embd.weight`."""
    has_output: bool = True
    """There is an `output.weight`; without one the token embeddings take its place."""
    weight: int = field(default=0, compare=False)
    """Roughly the bytes this object keeps in memory, without the tensors."""

    @property
    def architecture(self) -> str:
        """`general.architecture`; empty if missing."""
        return self.text("general.architecture")

    def arch_key(self, name: str) -> str:
        """A key of the architecture's own: `block_count` -> `llama.block_count`."""
        return f"{self.architecture}.{name}"

    def text(self, key: str) -> str:
        """The value of this key if it is a string, else empty."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str, default: int = 0) -> int:
        """The value of this key if it is an integer, else the default."""
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def integers(self, key: str) -> tuple[int, ...]:
        """The integers under this key, be it one or an array; empty if it is neither."""
        value = self.values.get(key)
        several = value if isinstance(value, tuple) else (value,)
        return tuple(item for item in several if isinstance(item, int) and not isinstance(item, bool))

    def length(self, key: str) -> int:
        """Elements of the array under this key, kept or skipped; 0 if there is none."""
        value = self.values.get(key)
        if isinstance(value, SkippedArray):
            return value.length
        return len(value) if isinstance(value, tuple) else 0

    @property
    def chat_template(self) -> str:
        """The Jinja template inside the file; empty if there is none."""
        return self.text("tokenizer.chat_template")

    @property
    def file_type(self) -> str:
        """The quantization's name, like `Q4_K_M`; `unknown` if the file does not say."""
        number = self.integer("general.file_type", -1)
        try:
            kind = LlamaFileType(number)
        except ValueError:
            return "unknown"
        if kind is LlamaFileType.GUESSED:
            return "unknown"
        return kind.name.removeprefix("MOSTLY_").removeprefix("ALL_").removesuffix("_MOE")
